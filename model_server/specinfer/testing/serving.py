"""ASGI apps served on free ports by threads, for tests that are not async."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.types import ASGIApp

from specinfer.local.sagemaker_runtime import RuntimeSettings, SageMakerRuntime

_START_SECONDS = 10.0


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Run the app; yields its base URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + _START_SECONDS
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def sagemaker(settings: RuntimeSettings) -> Iterator[str]:
    """Run the stand-in for the SageMaker Runtime; yields its base URL."""
    # The client lives in the server's loop, where nobody would close connections it kept.
    limits = httpx.Limits(max_keepalive_connections=0)
    client = httpx.AsyncClient(timeout=None, limits=limits, trust_env=False)
    with serving(SageMakerRuntime(settings, client).app()) as url:
        yield url
