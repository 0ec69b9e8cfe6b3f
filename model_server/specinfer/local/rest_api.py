"""A stand-in for API Gateway's REST API: any method and path to one Lambda function.

Limits and answers are the service's:
https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-execution-service-limits-table.html
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from specinfer.local.lambda_pool import FunctionError, FunctionTimeoutError
from specinfer.local.limited_body import BodyTooLargeError, limited_body
from specinfer.local.proxy_event import (
    HttpAnswer,
    HttpRequest,
    MalformedAnswerError,
    from_answer,
    to_event,
)

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# An event and an answer of a buffered invocation: 6 MB and a little for the envelope.
_LAMBDA_BYTES = 6_291_556

Invoke = Callable[[Mapping[str, Any], str], Awaitable[Any]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """API Gateway's limits."""

    integration_seconds: float = 29.0
    max_body_bytes: int = 10 * 1024 * 1024


class RestApi:
    """`invoke` runs the function on (event, request id)."""

    def __init__(self, invoke: Invoke, settings: RestSettings) -> None:
        self._invoke = invoke
        self._settings = settings

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(routes=[Route("/{path:path}", self._serve, methods=list(METHODS))])

    async def _serve(self, request: Request) -> Response:
        try:
            body = await limited_body(request, self._settings.max_body_bytes)
        except BodyTooLargeError:
            return _message(413, "Request Too Long")
        arrived = _arrived(request, body)
        event = to_event(arrived)
        if len(json.dumps(event)) > _LAMBDA_BYTES:
            return _message(413, "Request Too Long")
        try:
            async with asyncio.timeout(self._settings.integration_seconds):
                answer = from_answer(await self._invoke(event, arrived.id))
        except (TimeoutError, FunctionTimeoutError):
            return _message(504, "Endpoint request timed out")
        except (FunctionError, MalformedAnswerError) as error:
            _log.error("specinfer: the Lambda function failed: %s", error)
            return _message(502, "Internal server error")
        return _answered(answer, arrived.id)


def _arrived(request: Request, body: bytes) -> HttpRequest:
    return HttpRequest(
        method=request.method,
        path=request.url.path,
        query=request.url.query,
        headers=request.headers.items(),
        body=body,
        source_ip=request.client.host if request.client else "127.0.0.1",
    )


def _answered(answer: HttpAnswer, request_id: str) -> Response:
    response = Response(answer.body, answer.status)
    for name, value in answer.headers:
        response.headers.append(name, value)
    response.headers["x-amzn-RequestId"] = request_id
    return response


def _message(status: int, text: str) -> Response:
    return Response(json.dumps({"message": text}), status, media_type="application/json")
