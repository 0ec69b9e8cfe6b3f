"""HTTP plumbing: bounded bodies, callers that leave, error documents, streams that are closed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from specinfer.server.dialects.common import Dialect
from specinfer.server.dialects.dispatch import CHAT
from specinfer.server.errors import ClientGoneError, RequestError
from specinfer.server.sse import ascii_json

T = TypeVar("T")


def json_response(status: int, document: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(ascii_json(document), status, headers, media_type="application/json")


def problem_response(error: RequestError, dialect: Dialect = CHAT) -> Response:
    """Return the error in the dialect's own form."""
    status, document = dialect.problem(error)
    retry = error.retry_after
    return json_response(status, document, None if retry is None else {"Retry-After": str(retry)})


async def read_body(request: Request, limit: int) -> bytes:
    """Read the body; raises RequestError 413 as soon as it exceeds limit bytes."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise RequestError(
                    413, "body_too_large", f"the body exceeds {limit} bytes", field="body"
                )
    except ClientDisconnect:
        raise ClientGoneError("the caller left while sending its body") from None
    return bytes(body)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await work, cancelling it if the caller leaves; raises ClientGoneError then.

    The body must have been read: the next message of a connection is its end.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_departure(request))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError("the caller left before its answer was ready")
    finally:
        await _stop(task, watcher)


async def _departure(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stop(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class ClosedStream(StreamingResponse):
    """A stream that tells when it is over, however the connection ends."""

    def __init__(
        self, text: AsyncIterator[str], media_type: str, on_close: Callable[[], None]
    ) -> None:
        super().__init__(text, media_type=media_type, headers={"Cache-Control": "no-cache"})
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_close()


class InflightLimit:
    """ASGI layer that refuses work, but never a health check, beyond a number of requests."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] == "/ping":
            await self._app(scope, receive, send)
        elif self._running >= self._limit:
            await self._refuse(scope, receive, send)
        else:
            self._running += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._running -= 1

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"{self._limit} requests are already being served"
        error = RequestError(429, "too_many_requests", message, retry_after=1)
        await problem_response(error)(scope, receive, send)
