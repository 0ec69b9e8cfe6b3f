"""ASGI apps served on sockets bound beforehand, within the running event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from specinfer.local.ports import url_of

# For connections that still run when the stack stops; then they are cut.
_GRACE_SECONDS = 1


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[str]:
    """Yields the base URL."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener.dup()]))
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        await running


class _Server(uvicorn.Server):
    """Leaves signals to the stack."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
