"""The real boto3 client against the stand-in, with a scripted container behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError, EventStreamError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from specinfer.local.ports import Listeners, Ports
from specinfer.local.sagemaker_runtime import RuntimeSettings, SageMakerRuntime
from specinfer.local.serving import serving

ANSWER = "data: 日本語 🙂 done\n\n".encode()


@dataclass
class Container:
    """Remembers what it was sent; answers as told."""

    status: int = 200
    body: bytes = ANSWER
    ping_status: int = 200
    breaks_off: bool = False
    hangs: bool = False
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def app(self) -> Starlette:
        routes = [
            Route("/ping", self._ping),
            Route("/invocations", self._invocations, methods=["POST"]),
        ]
        return Starlette(routes=routes)

    async def _ping(self, _: Request) -> Response:
        return Response(status_code=self.ping_status)

    async def _invocations(self, request: Request) -> Response:
        self.seen.append((dict(request.headers), await request.body()))
        headers = {
            "content-type": "text/event-stream",
            "x-amzn-sagemaker-custom-attributes": "from-container",
            "x-private": "1",
        }
        if self.breaks_off or self.hangs:
            return StreamingResponse(self._half(), self.status, headers)
        return Response(self.body, self.status, headers)

    async def _half(self) -> AsyncIterator[bytes]:
        yield self.body[:8]
        if self.hangs:
            await asyncio.sleep(600)
        raise ConnectionError("the container breaks off here")


@pytest.fixture
def container() -> Container:
    return Container()


@pytest.fixture
def listeners() -> Any:
    with Listeners(Ports(rest=0, container=0, runtime=0, dynamodb=0)) as listeners:
        yield listeners


@pytest.fixture
def settings(loop: Any, listeners: Listeners, container: Container) -> RuntimeSettings:
    return RuntimeSettings(container=loop.enter(serving(container.app(), listeners.container)))


@pytest.fixture
def http(loop: Any) -> httpx.AsyncClient:
    client: httpx.AsyncClient = loop.enter(httpx.AsyncClient(timeout=None, trust_env=False))
    return client


@pytest.fixture
def start(
    loop: Any, listeners: Listeners, http: httpx.AsyncClient, aws: Callable[[str, str], Any]
) -> Callable[..., Any]:
    """A boto3 client of a fresh stand-in with these settings."""

    def start(settings: RuntimeSettings, **options: Any) -> Any:
        app = SageMakerRuntime(settings, http, **options).app()
        return aws("sagemaker-runtime", loop.enter(serving(app, listeners.runtime)))

    return start


def _invoke(client: Any, **arguments: Any) -> Any:
    given = {"EndpointName": "specinfer", "ContentType": "application/json", "Body": b"{}"}
    return client.invoke_endpoint(**(given | arguments))


def _stream(client: Any, **arguments: Any) -> Any:
    given = {"EndpointName": "specinfer", "ContentType": "application/json", "Body": b"{}"}
    return client.invoke_endpoint_with_response_stream(**(given | arguments))


def _parts(answer: Any) -> list[bytes]:
    return [event["PayloadPart"]["Bytes"] for event in answer["Body"]]


def _error(call: Callable[..., Any], client: Any, **arguments: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        call(client, **arguments)
    response: dict[str, Any] = caught.value.response
    return response


def test_invoke_passes_what_sagemaker_passes(
    start: Callable[..., Any], settings: RuntimeSettings, container: Container
) -> None:
    answer = _invoke(
        start(settings), Body=b'{"inputs": "x"}', Accept="application/json", CustomAttributes="a=1"
    )
    assert answer["Body"].read() == ANSWER
    assert answer["ContentType"] == "text/event-stream"
    assert answer["CustomAttributes"] == "from-container"
    assert answer["InvokedProductionVariant"] == "primary"
    assert "x-private" not in answer["ResponseMetadata"]["HTTPHeaders"]
    headers, body = container.seen[0]
    assert body == b'{"inputs": "x"}'
    assert headers["accept"] == "application/json"
    assert headers["x-amzn-sagemaker-custom-attributes"] == "a=1"
    assert "authorization" not in headers
    assert "x-amz-date" not in headers


def test_a_stream_survives_a_cut_at_every_size(
    start: Callable[..., Any], settings: RuntimeSettings, loop: Any, http: httpx.AsyncClient
) -> None:
    client = start(settings)
    assert b"".join(_parts(_stream(client, Accept="text/event-stream"))) == ANSWER
    for size in range(1, len(ANSWER) + 1):
        runtime = SageMakerRuntime(replace(settings, part_bytes=size), http)
        events = loop.run(_collect(runtime))
        assert b"".join(events) == ANSWER
        assert max(map(len, events)) == size


async def _collect(runtime: SageMakerRuntime) -> list[bytes]:
    """The parts by botocore's own parser, without a socket between."""
    from botocore.eventstream import EventStreamBuffer

    buffer = EventStreamBuffer()
    transport = httpx.ASGITransport(runtime.app())
    headers = {"authorization": "AWS4-HMAC-SHA256 x"}
    async with httpx.AsyncClient(transport=transport, base_url="http://runtime") as client:
        path = "/endpoints/specinfer/invocations-response-stream"
        answer = await client.post(path, content=b"{}", headers=headers)
    buffer.add_data(answer.content)
    return [event.payload for event in buffer]


def test_a_small_part_size_reaches_boto3(
    start: Callable[..., Any], settings: RuntimeSettings, container: Container
) -> None:
    answer = _stream(start(replace(settings, part_bytes=1)), Accept="text/event-stream")
    assert _parts(answer) == [ANSWER[i : i + 1] for i in range(len(ANSWER))]
    assert answer["ContentType"] == "text/event-stream"
    assert container.seen[0][0]["accept"] == "text/event-stream"


@pytest.mark.parametrize("call", [_invoke, _stream])
@pytest.mark.parametrize(("status", "side"), [(422, "client"), (500, "server")])
def test_the_containers_error_is_a_model_error(
    start: Callable[..., Any],
    settings: RuntimeSettings,
    container: Container,
    call: Callable[..., Any],
    status: int,
    side: str,
) -> None:
    container.status, container.body = status, b'{"error": "no"}'
    response = _error(call, start(settings))
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert response["Error"]["Code"] == "ModelError"
    assert response["OriginalStatusCode"] == status
    assert json.loads(response["OriginalMessage"]) == {"error": "no"}
    assert f"Received {side} error ({status}) from primary" in response["Error"]["Message"]


@pytest.mark.parametrize("call", [_invoke, _stream])
def test_an_endpoint_is_unknown_until_its_container_is_ready(
    start: Callable[..., Any],
    settings: RuntimeSettings,
    container: Container,
    call: Callable[..., Any],
) -> None:
    container.ping_status = 503
    client = start(settings)
    response = _error(call, client)
    assert response["Error"]["Code"] == "ValidationError"
    assert "not found" in response["Error"]["Message"]
    container.ping_status = 200
    call(client)["Body"].close()


def test_an_unhealthy_container_is_unavailable(
    start: Callable[..., Any], settings: RuntimeSettings, container: Container
) -> None:
    now = [0.0]
    client = start(settings, clock=lambda: now[0])
    _invoke(client)["Body"].close()
    container.ping_status = 500
    _invoke(client)["Body"].close()  # the last good /ping is younger than the interval
    now[0] += settings.ping_every_seconds
    response = _error(_invoke, client)
    assert response["Error"]["Code"] == "ServiceUnavailable"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 503


@pytest.mark.parametrize("call", [_invoke, _stream])
def test_another_name_is_not_found(
    start: Callable[..., Any], settings: RuntimeSettings, call: Callable[..., Any]
) -> None:
    response = _error(call, start(settings), EndpointName="other")
    assert response["Error"]["Code"] == "ValidationError"
    assert "Endpoint other of account 123456789012 not found." in response["Error"]["Message"]


def test_a_broken_off_answer_is_a_model_error(
    start: Callable[..., Any], settings: RuntimeSettings, container: Container
) -> None:
    container.breaks_off = True
    response = _error(_invoke, start(settings))
    assert response["Error"]["Code"] == "ModelError"
    assert response["OriginalStatusCode"] == 0


def test_a_broken_off_stream_is_a_stream_error(
    start: Callable[..., Any], settings: RuntimeSettings, container: Container
) -> None:
    container.breaks_off = True
    body = _stream(start(settings))["Body"]
    events = iter(body)
    assert next(events)["PayloadPart"]["Bytes"] == ANSWER[:8]
    with pytest.raises(EventStreamError, match=r"ModelStreamError.* was closed"):
        next(events)
    body.close()


def test_a_late_answer_is_a_model_error(
    start: Callable[..., Any], settings: RuntimeSettings, container: Container
) -> None:
    container.hangs = True
    response = _error(_invoke, start(replace(settings, invoke_seconds=0.2)))
    assert response["OriginalStatusCode"] == 0
    assert "timed out while waiting for a response" in response["OriginalMessage"]


def test_a_late_stream_is_a_stream_error(
    start: Callable[..., Any], settings: RuntimeSettings, container: Container
) -> None:
    container.hangs = True
    body = _stream(start(replace(settings, stream_seconds=0.3)))["Body"]
    events = iter(body)
    assert next(events)["PayloadPart"]["Bytes"] == ANSWER[:8]
    with pytest.raises(EventStreamError, match=r"ModelStreamError.* took too long"):
        next(events)
    body.close()


def test_a_body_over_the_limit_is_refused(
    start: Callable[..., Any], settings: RuntimeSettings, container: Container
) -> None:
    client = start(replace(settings, max_body_bytes=4))
    response = _error(_invoke, client, Body=b"12345")
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 413
    _invoke(client, Body=b"1234")["Body"].close()
    assert [body for _, body in container.seen] == [b"1234"]


def test_an_unsigned_request_is_refused(
    start: Callable[..., Any], settings: RuntimeSettings
) -> None:
    url = start(settings).meta.endpoint_url
    answer = httpx.post(f"{url}/endpoints/specinfer/invocations", content=b"{}")
    assert answer.status_code == 403
    assert answer.headers["x-amzn-errortype"] == "MissingAuthenticationTokenException"
