"""A stand-in for the SageMaker Runtime: its wire API in front of one real container.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_runtime_InvokeEndpoint.html
Signatures must be there but are not checked. Errors, headers, time limits and the event stream
are those of the service, so botocore cannot tell the difference.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from specinfer.local.event_stream import MEDIA_TYPE, payload_part, stream_error
from specinfer.local.limited_body import BodyTooLargeError, limited_body

ACCOUNT = "123456789012"
VARIANT = "primary"
# What SageMaker lets through to a container; it drops every other header.
_FORWARDED = (
    "content-type",
    "accept",
    "x-amzn-sagemaker-custom-attributes",
    "x-amzn-sagemaker-inference-id",
    "x-amzn-sagemaker-session-id",
    "x-amzn-sagemaker-target-model",
)
_TIMED_OUT = (
    f"Your invocation timed out while waiting for a response from container {VARIANT}. "
    "Review the latency metrics for each container in Amazon CloudWatch, resolve the issue, "
    "and try again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """`container` is the base URL of a server with /ping and /invocations."""

    container: str
    endpoint: str = "specinfer"
    invoke_seconds: float = 60.0
    stream_seconds: float = 480.0
    ping_seconds: float = 2.0  # SageMaker's own limit for an answer
    ping_every_seconds: float = 5.0
    # botocore's service model still states this maximum.
    max_body_bytes: int = 6_291_456
    # None: parts as the container wrote them. Otherwise none is longer, wherever that cuts.
    part_bytes: int | None = None


class _Refusal(Exception):
    """An error answer of the API."""

    def __init__(self, status: int, kind: str, message: str, **members: object) -> None:
        super().__init__(message)
        document = {"Message": message, **members}
        self.response = Response(
            json.dumps(document),
            status,
            headers={"x-amzn-ErrorType": kind},
            media_type="application/json",
        )


class SageMakerRuntime:
    """One endpoint. `client` talks to the container and must have no timeout of its own."""

    def __init__(
        self,
        settings: RuntimeSettings,
        client: httpx.AsyncClient,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._in_service = False
        self._pinged_at = float("-inf")

    def app(self) -> Starlette:
        """The ASGI application."""
        path = "/endpoints/{endpoint}/invocations"
        return Starlette(
            routes=[
                Route(path, self._invoke, methods=["POST"]),
                Route(f"{path}-response-stream", self._invoke_stream, methods=["POST"]),
            ],
            exception_handlers={_Refusal: _refused},
        )

    async def _invoke(self, request: Request) -> Response:
        invocation = await self._admit(request, accept="accept")
        try:
            async with asyncio.timeout(self._settings.invoke_seconds):
                answer = await self._send(invocation)
                body = await _read(answer)
        except TimeoutError:
            raise _model_error(0, _TIMED_OUT) from None
        _check(answer, body)
        headers = _answer_headers(answer)
        headers["content-type"] = answer.headers.get("content-type", "application/octet-stream")
        return Response(body, headers=headers)

    async def _invoke_stream(self, request: Request) -> Response:
        invocation = await self._admit(request, accept="x-amzn-sagemaker-accept")
        ends_at = asyncio.get_running_loop().time() + self._settings.stream_seconds
        try:
            async with asyncio.timeout_at(ends_at):
                answer = await self._send(invocation)
                if not answer.is_success:
                    _check(answer, await _read(answer))
        except TimeoutError:
            raise _model_error(0, _TIMED_OUT) from None
        headers = _answer_headers(answer)
        headers["X-Amzn-SageMaker-Content-Type"] = answer.headers.get("content-type", "")
        events = self._events(answer, ends_at)
        return StreamingResponse(events, media_type=MEDIA_TYPE, headers=headers)

    async def _events(self, answer: httpx.Response, ends_at: float) -> AsyncIterator[bytes]:
        chunks = answer.aiter_raw()
        try:
            while chunk := await _next(chunks, ends_at):
                for part in self._cut(chunk):
                    yield payload_part(part)
        except TimeoutError:
            yield stream_error("ModelInvocationTimeExceeded", "the stream took too long")
        except httpx.TransportError:
            yield stream_error("StreamBroken", "the connection to the container was closed")
        finally:
            await answer.aclose()

    def _cut(self, chunk: bytes) -> list[bytes]:
        size = self._settings.part_bytes or len(chunk)
        return [chunk[i : i + size] for i in range(0, len(chunk), size)]

    async def _admit(self, request: Request, accept: str) -> httpx.Request:
        """The request for the container, or the service's own refusal."""
        if not request.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 "):
            raise _Refusal(403, "MissingAuthenticationTokenException", "Missing Authentication")
        name = request.path_params["endpoint"]
        if name != self._settings.endpoint:
            raise _not_found(name)
        try:
            body = await limited_body(request, self._settings.max_body_bytes)
        except BodyTooLargeError:
            raise _Refusal(
                413,
                "ValidationError",
                f"the body is longer than {self._settings.max_body_bytes} bytes",
            ) from None
        await self._require_healthy()
        headers = {k: v for k, v in request.headers.items() if k in _FORWARDED}
        if accept in request.headers:
            headers["accept"] = request.headers[accept]
        url = f"{self._settings.container}/invocations"
        return self._client.build_request("POST", url, content=body, headers=headers)

    async def _require_healthy(self) -> None:
        """As SageMaker: no endpoint before the first good /ping, no capacity after a bad one."""
        if self._clock() - self._pinged_at < self._settings.ping_every_seconds:
            return
        if await self._ping():
            self._in_service, self._pinged_at = True, self._clock()
        elif self._in_service:
            raise _Refusal(503, "ServiceUnavailable", "the container does not answer /ping")
        else:
            raise _not_found(self._settings.endpoint)

    async def _ping(self) -> bool:
        try:
            async with asyncio.timeout(self._settings.ping_seconds):
                answer = await self._client.get(f"{self._settings.container}/ping")
        except (TimeoutError, httpx.TransportError):
            return False
        return answer.status_code == 200

    async def _send(self, invocation: httpx.Request) -> httpx.Response:
        """The head of the container's answer; its body is still to be read."""
        try:
            return await self._client.send(invocation, stream=True)
        except httpx.ConnectError:
            self._pinged_at = float("-inf")
            raise _Refusal(503, "ServiceUnavailable", "the container takes no connection") from None
        except httpx.TransportError:
            self._pinged_at = float("-inf")
            raise _model_error(0, "the container closed the connection") from None


async def _next(chunks: AsyncIterator[bytes], ends_at: float) -> bytes:
    """The next chunk, b"" at the end. A time limit around a `yield` would hit the wrong task."""
    async with asyncio.timeout_at(ends_at):
        return await anext(chunks, b"")


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, _Refusal)
    return error.response


async def _read(answer: httpx.Response) -> bytes:
    try:
        return await answer.aread()
    except httpx.TransportError:
        raise _model_error(0, "the container broke off its answer") from None
    finally:
        await answer.aclose()


def _check(answer: httpx.Response, body: bytes) -> None:
    if not answer.is_success:
        raise _model_error(answer.status_code, body.decode(errors="replace"))


def _not_found(name: str) -> _Refusal:
    return _Refusal(400, "ValidationError", f"Endpoint {name} of account {ACCOUNT} not found.")


def _model_error(status: int, text: str) -> _Refusal:
    side = "client" if 400 <= status < 500 else "server"
    return _Refusal(
        424,
        "ModelError",
        f'Received {side} error ({status}) from {VARIANT} with message "{text}". '
        f"See https://console.aws.amazon.com/cloudwatch/ in account {ACCOUNT} for more.",
        OriginalStatusCode=status,
        OriginalMessage=text,
        LogStreamArn=f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/sagemaker/Endpoints/x",
    )


def _answer_headers(answer: httpx.Response) -> dict[str, str]:
    headers = {"x-Amzn-Invoked-Production-Variant": VARIANT}
    custom = "X-Amzn-SageMaker-Custom-Attributes"
    if custom in answer.headers:
        headers[custom] = answer.headers[custom]
    return headers
