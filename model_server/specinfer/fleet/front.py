"""The fleet's front: hands each call to a replica, and to another one if that dies.

Generating has no side effects, so an answer of which no byte was sent may be made anew.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from specinfer.fleet.call import Call, Head, Part
from specinfer.fleet.errors import FleetBusyError, ReplicaLostError
from specinfer.fleet.pages import summed
from specinfer.server.dialects.common import Dialect
from specinfer.server.dialects.dispatch import CHAT, COMPLETIONS, TGI, dialect_of, parse_body
from specinfer.server.errors import RequestError
from specinfer.server.http import problem_response
from specinfer.server.sse import Framing

log = logging.getLogger(__name__)

ATTEMPTS = 3  # replicas a call may lose
PING_S = 2.0  # what SageMaker and load balancers wait for a health check
AGAIN = "X-SpecInfer-Attempts"  # told when there was more than one
PATHS: dict[str, Dialect] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/generate": TGI,
    "/generate_stream": TGI,
}
LOST = RequestError(503, "replica_lost", "the replica died over this request", retry_after=1)
BUSY = RequestError(429, "queue_full", "too many requests wait for a replica", retry_after=1)
NONE_READY = RequestError(503, "model_loading", "no replica is ready yet", retry_after=5)


class Replicas(Protocol):
    """The fleet as its front sees it."""

    def call(self, call: Call) -> AsyncIterator[Part]:
        """Yield a replica's answer; raises ReplicaLostError or FleetBusyError."""

    async def pages(self) -> list[bytes]:
        """Return every replica's metrics page."""


class Front:
    """Answers HTTP requests with the replicas' answers."""

    def __init__(self, replicas: Replicas, ping_s: float = PING_S) -> None:
        self._replicas = replicas
        self._ping_s = ping_s

    async def answer(self, request: Request) -> Response:
        scope = request.scope
        call = Call(
            scope["method"],
            scope["path"],
            scope["query_string"],
            tuple(scope["headers"]),
            await request.body(),
        )
        if call.path == "/metrics":
            page = summed(await self._replicas.pages())
            return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")
        if call.path == "/ping":
            return await self._ping(call)
        return await self._generated(call)

    async def _ping(self, call: Call) -> Response:
        try:
            return await asyncio.wait_for(self._generated(call), self._ping_s)
        except TimeoutError:
            return problem_response(NONE_READY)

    async def _generated(self, call: Call) -> Response:
        try:
            return await self._begun(call)
        except FleetBusyError:
            return problem_response(BUSY, _dialect(call))
        except ReplicaLostError:
            return problem_response(LOST, _dialect(call))

    async def _begun(self, call: Call) -> Response:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = await self._once(call)
            except ReplicaLostError as error:
                log.warning("a replica was lost in attempt %d of %d: %s", attempt, ATTEMPTS, error)
                lost = error
            else:
                if attempt > 1:
                    response.headers[AGAIN] = str(attempt)
                return response
        raise lost

    async def _once(self, call: Call) -> Response:
        parts = self._replicas.call(call)
        head = await anext(parts)
        assert isinstance(head, Head)
        if head.streams:
            response: Response = StreamingResponse(_streamed(parts, head, call), head.status)
        else:
            async with aclosing(parts):  # type: ignore[type-var]
                body = b"".join([part async for part in parts if isinstance(part, bytes)])
            response = Response(body, head.status)
        response.raw_headers = [*_kept(head), *_length(response)]
        return response


async def _streamed(parts: AsyncIterator[Part], head: Head, call: Call) -> AsyncIterator[bytes]:
    """Yield the body; a death in its middle is the stream's last event."""
    async with aclosing(parts):  # type: ignore[type-var]
        try:
            async for part in parts:
                assert isinstance(part, bytes)
                yield part
        except ReplicaLostError as error:
            log.warning("a replica was lost in the middle of a stream: %s", error)
            framing = Framing.wanted_by(head.header(b"content-type"))
            yield framing.event(_dialect(call).problem(LOST)[1]).encode()


def _dialect(call: Call) -> Dialect:
    try:
        return PATHS[call.path] if call.path in PATHS else dialect_of(parse_body(call.body))
    except RequestError:
        return CHAT


def _kept(head: Head) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, value in head.headers if key.lower() != b"content-length"]


def _length(response: Response) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, value in response.raw_headers if key == b"content-length"]
