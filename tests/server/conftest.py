"""A running server over the fake engine: real sockets, a port of its own, closed after the test."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import httpx
import pytest
import uvicorn

from specinfer.server.app import create_app
from specinfer.server.backend import Backend, Engine
from specinfer.server.deadline import Deadlines
from specinfer.server.dialects.common import Desk
from specinfer.server.meters import Meters
from specinfer.server.report import Observer
from specinfer.server.service import Service
from specinfer.server.settings import ServerSettings
from specinfer.testing.fake_engine import FakeEngine

WAIT_S = 10


def poll(
    condition: Callable[[], bool], what: str = "the condition", seconds: float = WAIT_S
) -> None:
    """Poll with a deadline."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come about in {seconds} s"
        time.sleep(0.005)


@dataclass(frozen=True)
class Running:
    """A server under test."""

    client: httpx.Client
    service: Service
    engine: FakeEngine

    def post(self, body: object, path: str = "/invocations", **kwargs: object) -> httpx.Response:
        return self.client.post(path, json=body, **kwargs)  # type: ignore[arg-type]


Start = Callable[..., Running]


@contextlib.contextmanager
def serving(service: Service) -> Iterator[str]:
    """Run the service's app; yields its address."""
    config = uvicorn.Config(create_app(service), port=0, log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        poll(lambda: server.started, "the server's start")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        service.tokenisers.shutdown()
        service.compilers.shutdown()


@contextlib.contextmanager
def starter() -> Iterator[Start]:
    """Yield a function that starts a server: an engine or a loader, and settings by name."""
    with contextlib.ExitStack() as stack:

        def run(
            engine: FakeEngine | None = None,
            load: Callable[[], Engine] | None = None,
            ready: bool = True,
            replaces: bool = False,
            observers: tuple[Observer, ...] = (),
            **settings: object,
        ) -> Running:
            engine = engine or FakeEngine()
            chosen = replace(ServerSettings(), **settings)  # type: ignore[arg-type]
            backend = Backend(load or (lambda: engine), replaces=replaces)
            meters = Meters()
            meters.watch(backend)
            service = Service(
                backend=backend,
                settings=chosen,
                deadlines=Deadlines(time.monotonic),
                desk=Desk(chosen, draw_seed=lambda: 4711),
                tokenisers=ThreadPoolExecutor(1),
                compilers=ThreadPoolExecutor(1),
                wall_clock=lambda: 1_700_000_000.5,
                new_id=lambda: "answer-1",
                meters=meters,
                observers=observers,
            )
            address = stack.enter_context(serving(service))
            client = stack.enter_context(httpx.Client(base_url=address, timeout=WAIT_S))
            if ready:
                poll(lambda: service.backend.state == "ready", "the engine's load")
            return Running(client, service, engine)

        yield run


@pytest.fixture
def start() -> Iterator[Start]:
    with starter() as run:
        yield run


@pytest.fixture(scope="module")
def start_for_module() -> Iterator[Start]:
    """Start servers that all tests of a module share."""
    with starter() as run:
        yield run


@pytest.fixture(scope="session")
def _shared() -> Iterator[Running]:
    with starter() as run:
        yield run()


@pytest.fixture
def server(_shared: Running) -> Running:
    """Return a server with all settings left alone, shared by tests that change nothing of it."""
    _shared.engine.requests.clear()
    return _shared


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., None]:
    return poll
