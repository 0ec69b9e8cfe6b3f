"""An event loop in a thread for the stack's parts, so that tests can use blocking clients."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest
from botocore.config import Config

T = TypeVar("T")
DEADLINE = 20.0


class Loop:
    """Runs coroutines from the test's thread; what is entered is exited at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._entered = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE)

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        return self.run(self._entered.enter_async_context(context))

    def close(self) -> None:
        self.run(self._entered.aclose())
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits for a condition; fails at a deadline."""

    def wait(condition: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < ends_at, "it did not happen in time"
            time.sleep(0.02)

    return wait


@pytest.fixture
def aws() -> Iterator[Callable[[str, str], Any]]:
    """Makes boto3 clients of one attempt, closed at the end."""
    with ExitStack() as opened:

        def client(service: str, url: str) -> Any:
            made = boto3.client(
                service,  # type: ignore[call-overload]
                endpoint_url=url,
                region_name="us-east-1",
                aws_access_key_id="local",
                aws_secret_access_key="local",
                config=Config(retries={"total_max_attempts": 1}, read_timeout=DEADLINE),
            )
            opened.callback(made.close)
            return made

        yield client


@pytest.fixture
def fake_module(monkeypatch: pytest.MonkeyPatch) -> str:
    """The fake container server, importable by a child process."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return "fake_container"
