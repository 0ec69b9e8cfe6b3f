"""Lambda on a laptop: execution environments made on demand, kept warm, killed when late."""

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from specinfer.local import lambda_worker

# A line of JSON may hold Lambda's largest event or answer (6 MB), every character escaped.
_LINE_BYTES = 64 << 20


class FunctionError(Exception):
    """The handler raised, or its process ended."""


class FunctionTimeoutError(Exception):
    """The handler took longer than the function may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSettings:
    """`folder` is the root of the zip. `environment` is all that the function sees."""

    folder: Path
    environment: Mapping[str, str]
    entry: str = "handler.lambda_handler"
    timeout_seconds: float = 29.0
    concurrency: int = 4


class LambdaPool:
    """At most `concurrency` environments; further events wait. `log` gets what they print."""

    def __init__(self, settings: FunctionSettings, log: Path) -> None:
        self._settings = settings
        self._log = log
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._idle: list[_Environment] = []
        self._all: set[_Environment] = set()

    async def __aenter__(self) -> "LambdaPool":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for environment in list(self._all):
            await self._drop(environment)

    async def invoke(self, event: Mapping[str, Any], request_id: str) -> Any:
        """The handler's result. Raises FunctionError or FunctionTimeoutError."""
        async with self._slots:
            environment = self._idle.pop() if self._idle else await self._start()
            try:
                result = await environment.run(event, request_id, self._settings.timeout_seconds)
            except FunctionError:
                if environment.alive:
                    self._idle.append(environment)
                else:
                    await self._drop(environment)
                raise
            except BaseException:
                await self._drop(environment)
                raise
            self._idle.append(environment)
            return result

    async def _start(self) -> "_Environment":
        command = (lambda_worker.__file__, str(self._settings.folder), self._settings.entry)
        with self._log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-u", "-P", *command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                env=dict(self._settings.environment),
                limit=_LINE_BYTES,
                # Ctrl-C in the terminal is the stack's to handle, not every process's.
                start_new_session=True,
            )
        environment = _Environment(process)
        self._all.add(environment)
        try:
            await environment.ready()
        except BaseException:
            await self._drop(environment)
            raise
        return environment

    async def _drop(self, environment: "_Environment") -> None:
        self._all.discard(environment)
        if environment in self._idle:
            self._idle.remove(environment)
        await environment.kill()


class _Environment:
    """One worker process and the pipe to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def ready(self) -> None:
        """Once the handler is imported: Lambda's init phase. Raises FunctionError."""
        await self._answer()

    async def run(self, event: Mapping[str, Any], request_id: str, seconds: float) -> Any:
        job = {"event": event, "request_id": request_id, "seconds": seconds}
        try:
            async with asyncio.timeout(seconds):
                await self._send(json.dumps(job).encode() + b"\n")
                return (await self._answer())["result"]
        except TimeoutError:
            raise FunctionTimeoutError from None

    async def kill(self) -> None:
        if self.alive:
            self._process.kill()
        await self._process.wait()

    async def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            await self._process.stdin.drain()
        except ConnectionError:
            raise FunctionError("the function's process has ended") from None

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            await self._process.wait()
            raise FunctionError(f"the function's process ended ({self._process.returncode})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise FunctionError(answer["error"])
        return answer
