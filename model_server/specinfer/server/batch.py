"""JSON lines in, JSON lines out, order kept: the form of SageMaker's batch transform.

https://docs.aws.amazon.com/sagemaker/latest/dg/batch-transform.html
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from specinfer.server.deadline import Deadline
from specinfer.server.errors import RequestError
from specinfer.server.report import Caller
from specinfer.server.service import Entry, Exchange, RefusedError, Service
from specinfer.server.sse import ascii_json

MEDIA_TYPES = ("application/jsonlines", "application/x-jsonlines", "application/x-ndjson")
# A full queue is not a line's fault: wait for a place.
QUEUE_PAUSE_S = 0.5


def is_batch(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() in MEDIA_TYPES


@dataclass(slots=True)
class Batch:
    """The lines of one body, some of them running.  Whoever makes one must close it."""

    service: Service
    caller: Caller
    deadline: Deadline
    _tasks: list["asyncio.Task[str]"] = field(default_factory=list, init=False)

    def begin(self, body: bytes) -> None:
        """Start on all lines that are not blank, a few at a time."""
        places = asyncio.Semaphore(self.service.settings.batch_parallel)
        self._tasks = [
            asyncio.ensure_future(self._line(line, places))
            for line in body.splitlines()
            if line.strip()
        ]

    async def lines(self) -> AsyncIterator[str]:
        for task in self._tasks:
            yield await task

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _line(self, line: bytes, places: asyncio.Semaphore) -> str:
        async with places:
            try:
                document = await self._answer(line)
            except RefusedError as refused:
                document = refused.dialect.problem(refused.error)[1]
        return f"{ascii_json(document)}\n"

    async def _answer(self, line: bytes) -> Any:
        exchange = await self._admitted(line)
        try:
            return (await exchange.whole())[0]
        except RequestError as error:
            return exchange.dialect.problem(error)[1]
        finally:
            exchange.settle()

    async def _admitted(self, line: bytes) -> Exchange:
        while True:
            left = self.deadline.remaining()
            try:
                entry = Entry(stream=False, limit_s=left)
                return await self.service.admit(line, self.caller, entry)
            except RefusedError as refused:
                if refused.error.code != "queue_full" or left < QUEUE_PAUSE_S:
                    raise
            await asyncio.sleep(QUEUE_PAUSE_S)
