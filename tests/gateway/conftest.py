"""A gateway with a scripted endpoint and moto's DynamoDB, called with API Gateway events."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from specinfer_gateway.admission import Admission, ContentFilter
from specinfer_gateway.api_keys import ApiKeys
from specinfer_gateway.app import build_app
from specinfer_gateway.breaker import Breaker
from specinfer_gateway.cache import Cache
from specinfer_gateway.cache_key import Deployment
from specinfer_gateway.call import Gateway
from specinfer_gateway.endpoint import Endpoint
from specinfer_gateway.errors import GatewayError
from specinfer_gateway.jobs import Jobs
from specinfer_gateway.service import Service
from specinfer_gateway.settings import Settings
from specinfer_gateway.telemetry import NoTracer, Tracer

TABLE = "cache"
SPECULATION = {"steps": 2, "drafted": 8, "accepted": 3, "tokens_per_step": 2.5}


@dataclass
class FakeRuntime:
    """SageMaker Runtime in memory: answers by dialect, or does what `script` says."""

    script: Callable[[dict[str, Any]], bytes] | None = None
    events: list[Any] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def tgi(text: str = "an answer", finish: str = "length") -> bytes:
        details = {"finish_reason": finish, "generated_tokens": 5, "speculation": SPECULATION}
        return json.dumps([{"generated_text": text, "details": details}]).encode()

    @staticmethod
    def chat(text: str = "an answer", finish: str = "stop") -> bytes:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        usage = {"prompt_tokens": 3, "completion_tokens": 5, "speculation": SPECULATION}
        document = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice]}
        return json.dumps(document | {"usage": usage}).encode()

    def invoke_endpoint(self, **arguments: Any) -> dict[str, Any]:
        self.calls.append(arguments)
        body = json.loads(arguments["Body"])
        plain = self.tgi if "inputs" in body else self.chat
        answer = self.script(body) if self.script else plain()
        return {"Body": io.BytesIO(answer), "ContentType": "application/json"}

    def invoke_endpoint_with_response_stream(self, **arguments: Any) -> dict[str, Any]:
        self.calls.append(arguments)
        if self.script:
            self.script(json.loads(arguments["Body"]))
        return {"Body": self.events}

    def fail(self, code: str, message: str | None = "", **more: Any) -> None:
        """Let every call end with this botocore error."""
        response: Any = {"Error": {"Code": code, "Message": message}} | more

        def script(_: dict[str, Any]) -> bytes:
            raise ClientError(response, "InvokeEndpoint")

        self.script = script


@dataclass
class Recorder:
    """A meter that remembers."""

    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float = 1, unit: str = "Count") -> None:
        self.figures.setdefault(name, []).append(value)

    def total(self, name: str) -> float:
        return sum(self.figures.get(name, []))


@dataclass
class Clock:
    """Time that a test moves by hand; sleeping moves it too."""

    seconds: float = 1_000.0

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Context:
    """What Lambda tells a handler."""

    remaining_ms: int = 29_000
    aws_request_id: str = "lambda-1"

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@dataclass
class Reply:
    """An HTTP answer taken out of the proxy result."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Caller:
    """A gateway under test and what it stands on."""

    runtime: FakeRuntime
    meter: Recorder
    clock: Clock
    table: Any
    settings: Settings
    remaining_ms: int = 29_000
    content_filter: ContentFilter | None = None
    keys: ApiKeys | None = None
    jobs: Jobs | None = None
    tracer: Tracer = field(default_factory=NoTracer)

    def __post_init__(self) -> None:
        self.breaker = Breaker(self.clock, 10)

    @property
    def service(self) -> Service:
        settings = self.settings
        cache = Cache(self.table, TABLE, settings.cache_ttl_seconds, self.clock)
        return Service(
            endpoint=Endpoint(self.runtime, settings.endpoint),
            cache=cache if settings.cache_table else None,
            deployment=Deployment(settings.model_revision, settings.engine_revision),
            meter=self.meter,
            tracer=self.tracer,
            breaker=self.breaker,
            single_flight=settings.single_flight,
            sleep=self.clock.sleep,
        )

    @property
    def gateway(self) -> Gateway:
        admission = Admission(self.settings, self.content_filter)
        return Gateway(self.settings, admission, self.service, self.keys, self.jobs, self.clock)

    @staticmethod
    def fault(error: Exception, event: Any, context: Any) -> GatewayError:
        """Let the unexpected fail the test."""
        if isinstance(error, GatewayError):
            return error
        raise error

    def send(self, event: dict[str, Any]) -> Reply:
        answer = build_app(self.gateway, self.fault)(event, Context(self.remaining_ms))
        headers = {name: values[0] for name, values in answer["multiValueHeaders"].items()}
        return Reply(answer["statusCode"], headers, answer["body"] or "")

    @staticmethod
    def event(*arguments: Any) -> dict[str, Any]:
        return proxy_event(*arguments)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
        return self.send(proxy_event("POST", path, json.dumps(body), headers))


def proxy_event(
    method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """An API Gateway REST proxy event."""
    given = {"Content-Type": "application/json"} | (headers or {})
    return {
        "resource": path,
        "path": path,
        "httpMethod": method,
        "headers": given,
        "multiValueHeaders": {name: [value] for name, value in given.items()},
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": None,
        "stageVariables": None,
        "requestContext": {
            "resourcePath": path,
            "httpMethod": method,
            "path": f"/v{path}",
            "stage": "v",
            "requestId": "gateway-1",
            "identity": {"sourceIp": "127.0.0.1"},
        },
        "body": body,
        "isBase64Encoded": False,
    }


@pytest.fixture
def settings() -> Settings:
    return Settings(
        endpoint="specinfer", cache_table=TABLE, model_revision="r1", engine_revision="e1"
    )


@pytest.fixture(scope="module")
def aws() -> Iterator[Callable[[str], Any]]:
    """Clients of moto, in memory."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    with mock_aws():
        yield lambda service: boto3.client(service, region_name="us-east-1", **keys)


@pytest.fixture(scope="module")
def dynamodb(aws: Callable[[str], Any]) -> Any:
    client = aws("dynamodb")
    client.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "cache_key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cache_key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return client


@pytest.fixture
def table(dynamodb: Any) -> Any:
    for item in dynamodb.scan(TableName=TABLE)["Items"]:
        dynamodb.delete_item(TableName=TABLE, Key={"cache_key": item["cache_key"]})
    return dynamodb


@pytest.fixture
def caller(table: Any, settings: Settings) -> Caller:
    return Caller(FakeRuntime(), Recorder(), Clock(), table, settings)
