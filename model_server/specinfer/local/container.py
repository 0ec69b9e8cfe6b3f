"""The container server as a child process: started, watched, stopped."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from specinfer.local import tethered
from specinfer.local.errors import LocalStackError
from specinfer.local.ports import HOST
from specinfer.model_store.progress import Progress

_POLL_SECONDS = 0.1
# After SIGTERM the server lets running requests finish; whoever pressed Ctrl-C waits no longer.
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """What the server is started with: `module` run as a program with `arguments`."""

    port: int
    arguments: Sequence[str]
    module: str = "specinfer.server"


class Container:
    """A running child; `url` is where it will listen."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, log: Path) -> None:
        self.url = url
        self.pid = process.pid
        self._process = process
        self._log = log

    async def died(self) -> LocalStackError:
        """Returns only once the process has ended by itself."""
        status = await self._process.wait()
        return self._failure(f"the container server ended (exit status {status})")

    async def ready(self, client: httpx.AsyncClient, progress: Progress) -> None:
        """Until /ping is 200. Raises LocalStackError when the server says it never will be."""
        started = time.monotonic()
        while (status := await _ping(client, self.url)) != 200:
            if status == 500:
                raise self._failure("the container server could not load the model")
            progress.seconds("loading the model", time.monotonic() - started)
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self) -> None:
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _failure(self, what: str) -> LocalStackError:
        return LocalStackError(f"{what}: {_last_words(self._log)} (log: {self._log})")


@asynccontextmanager
async def running(settings: ContainerSettings, log: Path) -> AsyncIterator[Container]:
    """The child, which ends with this context, or with this process however that ends."""
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", tethered.__file__, settings.module, *settings.arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=sink,
            stderr=sink,
            # The child imports what this process can import.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # Ctrl-C in the terminal is the stack's to handle: it stops its parts in order.
            start_new_session=True,
        )
    container = Container(process, f"http://{HOST}:{settings.port}", log)
    try:
        yield container
    finally:
        await container.stop()


async def _ping(client: httpx.AsyncClient, url: str) -> int | None:
    """The status, or None while nobody listens."""
    try:
        return (await client.get(f"{url}/ping", timeout=2)).status_code
    except httpx.TransportError:
        return None


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("specinfer: ")]
    return (own or lines or ["it said nothing"])[-1].removeprefix("specinfer: ")
