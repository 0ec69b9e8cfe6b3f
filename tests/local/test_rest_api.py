import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from specinfer.local.lambda_pool import FunctionError, FunctionTimeoutError
from specinfer.local.rest_api import RestApi, RestSettings


def _call(invoke: Any, settings: RestSettings | None = None, **request: Any) -> httpx.Response:
    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(RestApi(invoke, settings or RestSettings()).app())
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.request(
                request.pop("method", "POST"), request.pop("url", "/generate"), **request
            )

    return asyncio.run(call())


async def _echo(event: Mapping[str, Any], request_id: str) -> Any:
    return {
        "statusCode": 200,
        "headers": {"X-Cache": "MISS"},
        "multiValueHeaders": {"Set-Cookie": ["a=1", "b=2"]},
        "body": json.dumps(event),
    }


def test_any_method_and_path_reaches_the_function() -> None:
    answer = _call(_echo, method="DELETE", url="/a/b%20c?x=1&x=2")
    event = answer.json()
    assert event["httpMethod"] == "DELETE"
    assert event["path"] == "/a/b c"
    assert event["multiValueQueryStringParameters"] == {"x": ["1", "2"]}
    assert answer.headers["x-cache"] == "MISS"
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers["x-amzn-requestid"] == event["requestContext"]["requestId"]
    assert answer.headers["content-type"] == "application/json"


def _raising(error: Exception) -> Callable[..., Any]:
    async def invoke(event: Mapping[str, Any], request_id: str) -> Any:
        raise error

    return invoke


async def _hang(event: Mapping[str, Any], request_id: str) -> Any:
    await asyncio.sleep(600)


async def _malformed(event: Mapping[str, Any], request_id: str) -> Any:
    return {"body": "no status"}


@pytest.mark.parametrize(
    ("invoke", "status", "message"),
    [
        (_raising(FunctionError("secret detail")), 502, "Internal server error"),
        (_malformed, 502, "Internal server error"),
        (_raising(FunctionTimeoutError()), 504, "Endpoint request timed out"),
        (_hang, 504, "Endpoint request timed out"),
    ],
)
def test_failures_are_api_gateways_own_documents(invoke: Any, status: int, message: str) -> None:
    answer = _call(invoke, RestSettings(integration_seconds=0.1))
    assert (answer.status_code, answer.json()) == (status, {"message": message})


def test_a_body_over_the_limit_never_reaches_the_function() -> None:
    settings = RestSettings(max_body_bytes=10)
    refused = _raising(AssertionError("invoked"))
    answer = _call(refused, settings, content=b"x" * 11)
    assert (answer.status_code, answer.json()) == (413, {"message": "Request Too Long"})
    assert _call(_echo, settings, content=b"x" * 10).status_code == 200


def test_a_chunked_body_over_the_limit_is_refused_too() -> None:
    async def chunks() -> Any:
        for _ in range(3):
            yield b"xxxx"

    settings = RestSettings(max_body_bytes=10)
    answer = _call(_raising(AssertionError("invoked")), settings, content=chunks())
    assert answer.status_code == 413


def test_an_event_beyond_lambdas_six_megabytes_is_refused() -> None:
    refused = _raising(AssertionError("invoked"))
    assert _call(refused, content=b"x" * 6_300_000).status_code == 413
