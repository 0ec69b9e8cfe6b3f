"""From a body's work to its answer: tokenise, submit, tell it whole or as a stream, report it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from specinfer.errors import SpecInferError
from specinfer.server.backend import Backend, Engine
from specinfer.server.deadline import Deadlines
from specinfer.server.dialects.common import Desk, Dialect, Stamp, Step, Work
from specinfer.server.dialects.dispatch import CHAT, dialect_of, parse_body
from specinfer.server.dialects.totals import Totals
from specinfer.server.errors import RequestError
from specinfer.server.generation import Generation, engine_errors, start
from specinfer.server.merge import merged
from specinfer.server.meters import Meters
from specinfer.server.report import CLIENT_GONE, Caller, Observer, Report
from specinfer.server.settings import ServerSettings
from specinfer.server.sse import Framing


class RefusedError(SpecInferError):
    """A request that was not admitted, and the dialect to say so in."""

    def __init__(self, error: RequestError, dialect: Dialect) -> None:
        super().__init__(error.message)
        self.error = error
        self.dialect = dialect


@dataclass(frozen=True, slots=True)
class Entry:
    """What the way into the server decides by itself; None leaves it to the body."""

    dialect: Dialect | None = None
    stream: bool | None = None
    limit_s: float | None = None

    def seconds(self, work: Work, settings: ServerSettings) -> float:
        """How long the generation may take."""
        if self.limit_s is not None:
            return self.limit_s
        return settings.stream_deadline_s if work.stream else settings.deadline_s


@dataclass(frozen=True, slots=True)
class Service:
    """All that answering takes, its clocks and random sources included."""

    backend: Backend
    settings: ServerSettings
    deadlines: Deadlines
    desk: Desk
    tokenisers: Executor  # off the event loop: a long prompt takes longer than a ping may
    compilers: Executor  # apart from them: a grammar may take a second
    wall_clock: Callable[[], float]
    new_id: Callable[[], str]
    meters: Meters
    observers: tuple[Observer, ...] = ()

    async def admit(self, body: bytes, caller: Caller, entry: Entry) -> "Exchange":
        """Read the body and submit its work; raises RefusedError."""
        dialect = entry.dialect or CHAT
        try:
            raw = parse_body(body)
            dialect = entry.dialect or dialect_of(raw)
            work = dialect.read(raw, self.desk)
            if entry.stream is not None:
                work = replace(work, stream=entry.stream)
            return await self._submit(work, dialect, caller, entry.seconds(work, self.settings))
        except RequestError as error:
            raise self.refuse(error, dialect) from None

    def refuse(self, error: RequestError, dialect: Dialect) -> RefusedError:
        """Count a request that never reached the engine."""
        self.meters.refused(dialect.key, error.code)
        return RefusedError(error, dialect)

    async def _submit(
        self, work: Work, dialect: Dialect, caller: Caller, seconds: float
    ) -> "Exchange":
        deadline = self.deadlines.begin(seconds)
        began = self.deadlines.clock()
        engine = self.backend.engine()
        loop = asyncio.get_running_loop()
        with engine_errors(dialect.key):
            if (params := work.params[0]).grammar is not None:
                await loop.run_in_executor(self.compilers, engine.prepare, params)
            prompt = await loop.run_in_executor(self.tokenisers, work.tokenise, engine)
            generations = start(engine, prompt, work.params, deadline, began)
        return Exchange(self, generations, work, dialect, caller, self._stamp(engine))

    def _stamp(self, engine: Engine) -> Stamp:
        return Stamp(
            id=self.new_id(),
            created=int(self.wall_clock()),
            model=engine.model_id,
            revision=engine.revision,
            decode=engine.decode,
        )

    def report(self, report: Report) -> None:
        for observer in (self.meters, *self.observers):
            observer.finished(report)


@dataclass(slots=True)
class Exchange:
    """One accepted request.  Whoever begins it must settle it."""

    service: Service
    generations: tuple[Generation, ...]  # one for each choice
    work: Work
    dialect: Dialect
    caller: Caller
    stamp: Stamp
    _outcome: str = field(default=CLIENT_GONE, init=False)  # until it is known better

    async def whole(self) -> tuple[Any, Totals]:
        """Return the answer's document, and its figures; raises RequestError."""
        try:
            answers = await asyncio.gather(*(each.whole() for each in self.generations))
        except RequestError as error:
            self._outcome = error.code
            raise
        # Thousands of log-probabilities to decode would hold up the event loop.
        document = await asyncio.get_running_loop().run_in_executor(
            self.service.tokenisers, self.work.script.document, answers, self.stamp
        )
        self._outcome = "ok"
        return document, self._totals()

    def _totals(self) -> Totals:
        return Totals.of([generation.answer() for generation in self.generations])

    async def events(self, framing: Framing) -> AsyncIterator[str]:
        """Yield the stream's text; an error after the first byte becomes its last event."""
        try:
            async for event in self._documents():
                yield framing.event(event)
        except RequestError as error:
            self._outcome = error.code
            yield framing.event(self.dialect.problem(error)[1])
        else:
            self._outcome = "ok"
            if self.dialect.ends_with_done:
                yield framing.done()

    async def _documents(self) -> AsyncIterator[Any]:
        """Yield the stream's events, those of several choices as they come."""
        script, stamp = self.work.script, self.stamp
        for choice in range(len(self.generations)):
            for event in script.opening(choice, stamp):
                yield event
        shown = [0] * len(self.generations)  # characters of each choice
        async with aclosing(merged([each.deltas() for each in self.generations])) as deltas:
            async for choice, delta in deltas:
                step = Step(choice, delta, shown[choice])
                shown[choice] += len(delta.text)
                for event in self._told(step):
                    yield event
        for event in script.tail([each.answer() for each in self.generations], stamp):
            yield event

    def _told(self, step: Step) -> Sequence[Any]:
        if step.delta.finish_reason is None:
            return self.work.script.piece(step, self.stamp)
        answer = self.generations[step.choice].answer()
        return self.work.script.closing(step, answer, self.stamp)

    def settle(self) -> None:
        """Free the engine's slots, whatever has happened, and report."""
        for generation in self.generations:
            generation.close()
        timelines = tuple(generation.timeline for generation in self.generations)
        self.service.report(
            Report(
                caller=self.caller,
                dialect=self.dialect.key,
                outcome=self._outcome,
                totals=self._totals() if self._outcome == "ok" else None,
                timelines=timelines,
                total_s=timelines[0].total_s,
            )
        )
