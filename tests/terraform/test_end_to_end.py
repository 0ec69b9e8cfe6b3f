"""What Terraform would deploy, run: its function, settings and table around one HTTP request."""

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest

from terraform_schema.workspace import Applied

moto_server = pytest.importorskip("moto.server")
lambda_pool = pytest.importorskip("specinfer.local.lambda_pool")
proxy_event = pytest.importorskip("specinfer.local.proxy_event")

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
}


class OneEndpoint(ThreadingHTTPServer):
    """SageMaker Runtime with the one endpoint that the plan makes; counts what it answers."""

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Invocations)
        self.path = f"/endpoints/{name}/invocations"
        self.answered = 0


class _Invocations(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers["Content-Length"]))
        found = self.path == server.path
        server.answered += found
        speculation = {"steps": 2, "drafted": 6, "accepted": 3, "tokens_per_step": 2.5}
        details = {"finish_reason": "length", "generated_tokens": 5, "speculation": speculation}
        answer = [{"generated_text": "an answer", "details": details}]
        body = json.dumps(answer if found else {"Message": "Endpoint not found."}).encode()
        self.send_response(200 if found else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if not found:
            self.send_header("x-amzn-ErrorType", "ValidationError")
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def runtime(small: Applied) -> Iterator[OneEndpoint]:
    server = OneEndpoint(small.one("aws_sagemaker_endpoint.this").values["name"])
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def dynamodb(small: Applied) -> Iterator[str]:
    """moto, with the table as the plan describes it."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    table = small.one("module.response_cache.aws_dynamodb_table.this").values
    client = boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    client.create_table(
        TableName=table["name"],
        BillingMode=table["billing_mode"],
        KeySchema=[{"AttributeName": table["hash_key"], "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": a["name"], "AttributeType": a["type"]} for a in table["attribute"]
        ],
    )
    yield url
    client.delete_table(TableName=table["name"])
    client.close()
    server.stop()


def ask(folder: Path, function: Any, environment: dict[str, str], log: Path) -> list[Any]:
    """Send the same request twice through the function; returns both HTTP answers."""
    settings = lambda_pool.FunctionSettings(
        folder=folder,
        environment=environment,
        entry=function["handler"],
        timeout_seconds=function["timeout"],
    )

    async def twice() -> list[Any]:
        answers = []
        async with lambda_pool.LambdaPool(settings, log) as pool:
            for _ in range(2):
                request = proxy_event.HttpRequest(
                    method="POST",
                    path="/generate",
                    query="",
                    headers=[("Content-Type", "application/json")],
                    body=json.dumps({"inputs": "Hello", "parameters": {"temperature": 0}}).encode(),
                    source_ip="127.0.0.1",
                )
                result = await pool.invoke(proxy_event.to_event(request), str(uuid.uuid4()))
                answers.append(proxy_event.from_answer(result))
        return answers

    return asyncio.run(twice())


def test_a_request_is_generated_once_and_then_cached(
    small: Applied, runtime: OneEndpoint, dynamodb: str, repository: Path, tmp_path: Path
) -> None:
    function = small.one('module.gateway.aws_lambda_function.this["answer"]').values
    environment = {
        **function["environment"][0]["variables"],
        **CREDENTIALS,
        "AWS_LAMBDA_FUNCTION_NAME": function["function_name"],
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function["memory_size"]),
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": f"http://127.0.0.1:{runtime.server_port}",
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb,
        "POWERTOOLS_TRACE_DISABLED": "true",
    }
    log = tmp_path / "log"
    first, second = ask(repository / "lambda", function, environment, log)
    assert (first.status, second.status) == (200, 200), first.body + log.read_bytes()
    caches = [dict(a.headers).get("X-Cache") for a in (first, second)]
    assert caches == ["MISS", "HIT"]
    assert first.body == second.body and b"an answer" in first.body
    assert runtime.answered == 1
    the_dashboard_finds(small, log)


def the_dashboard_finds(small: Applied, log: Path) -> None:
    """What the function counted is searched for by the dimensions it was counted by."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if '"_aws"' in line]
    counted = [line["_aws"]["CloudWatchMetrics"][0] for line in lines]
    body = small.one("aws_cloudwatch_dashboard.this").values["dashboard_body"]
    for metrics in counted:
        dimensions = ",".join([metrics["Namespace"], *sorted(metrics["Dimensions"][0])])
        assert f"{{{dimensions}}} service=" in body
    assert {m["Name"] for m in counted[1]["Metrics"]} >= {"CacheHit"}
