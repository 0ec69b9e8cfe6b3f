"""From a body's work to its answer: tokenise, submit, tell it whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from specinfer.server.backend import Backend
from specinfer.server.deadline import Deadlines
from specinfer.server.dialects.common import Desk, Dialect, Stamp, Work
from specinfer.server.errors import RequestError
from specinfer.server.generation import Generation, engine_errors
from specinfer.server.settings import ServerSettings
from specinfer.server.sse import Framing


@dataclass(frozen=True, slots=True)
class Service:
    """All that answering takes, its clocks and random sources included."""

    backend: Backend
    settings: ServerSettings
    deadlines: Deadlines
    desk: Desk
    tokenisers: Executor  # off the event loop: a long prompt takes longer than a ping may
    wall_clock: Callable[[], float]
    new_id: Callable[[], str]

    async def begin(self, work: Work, dialect: Dialect, seconds: float) -> Generation:
        """Submit the work; raises RequestError."""
        deadline = self.deadlines.begin(seconds)
        engine = self.backend.engine()
        loop = asyncio.get_running_loop()
        with engine_errors(dialect.key):
            prompt = await loop.run_in_executor(self.tokenisers, work.tokenise, engine)
            return Generation(engine, prompt, work.params, deadline)

    async def whole(self, work: Work, dialect: Dialect, seconds: float) -> Any:
        """Return the whole answer's document."""
        generation = await self.begin(work, dialect, seconds)
        try:
            return work.script.document(await generation.answer(), self.stamp())
        finally:
            generation.close()

    async def events(
        self, generation: Generation, work: Work, dialect: Dialect, framing: Framing
    ) -> AsyncIterator[str]:
        """Yield the stream's text; an error after the first byte becomes its last event."""
        stamp = self.stamp()
        try:
            for event in work.script.opening(stamp):
                yield framing.event(event)
            async for delta in generation.deltas():
                if not generation.finished:
                    events = work.script.piece(delta, stamp)
                else:
                    events = work.script.closing(delta, generation.told(), stamp)
                for event in events:
                    yield framing.event(event)
        except RequestError as error:
            yield framing.event(dialect.problem(error)[1])
        else:
            if dialect.ends_with_done:
                yield framing.done()

    def stamp(self) -> Stamp:
        engine = self.backend.engine()
        return Stamp(
            id=self.new_id(),
            created=int(self.wall_clock()),
            model=engine.model_id,
            revision=engine.revision,
            decode=engine.decode,
        )
