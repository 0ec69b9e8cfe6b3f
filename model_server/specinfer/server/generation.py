"""One request in the engine, seen from the event loop: deltas in order, a deadline, an answer."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from specinfer.errors import (
    ContextLengthError,
    EngineDeadError,
    ParameterError,
    QueueFullError,
    SpecInferError,
)
from specinfer.request import Delta, SamplingParams
from specinfer.server.backend import Engine, restarting
from specinfer.server.deadline import Cut, Deadline
from specinfer.server.dialects.common import Answer
from specinfer.server.errors import RequestError
from specinfer.server.report import Timeline

# How often a silent engine is asked whether it is alive and whether the server is to shut down.
POLL_S = 0.5
# How long a cancelled request may take to say so; one step takes tens of milliseconds.
CANCEL_GRACE_S = 5.0

log = logging.getLogger(__name__)


class Generation:
    """A submitted request.  Whoever makes one must close it."""

    def __init__(
        self,
        engine: Engine,
        prompt: Sequence[int],
        params: SamplingParams,
        deadline: Deadline,
        timeline: Timeline,
    ) -> None:
        """Submit; raises what the engine raises for a prompt too long or a full queue."""
        self._engine = engine
        self._deadline = deadline
        self.timeline = timeline
        self._queue: asyncio.Queue[Delta] = asyncio.Queue()  # bounded by the answer's length
        self._cut: Cut | None = None
        self._deltas: list[Delta] = []
        self.finished = False
        self._handle = engine.submit(prompt, params, _sink(self._queue))

    async def deltas(self) -> AsyncIterator[Delta]:
        """Yield each step's output; raises RequestError if the engine fails or gave no token."""
        while not self.finished:
            delta = await self._next()
            self._deltas.append(delta)
            self.timeline.note(delta)
            self.finished = delta.finish_reason is not None
            if delta.finish_reason == "error":
                log.error("the engine failed on a request: %s", delta.error)
                raise RequestError(500, "generation_failed", "the engine failed on this request")
            if delta.finish_reason == "lost":
                raise restarting()
            if delta.finish_reason == "cancelled" and not any(d.tokens for d in self._deltas):
                raise self._too_late()
            yield delta

    async def whole(self) -> Answer:
        """Wait for the end."""
        async for _ in self.deltas():
            pass
        return self.answer()

    def answer(self) -> Answer:
        """Return the answer; only after the last delta."""
        last = self._deltas[-1]
        assert last.stats is not None, "the last delta carries the figures"
        cancelled = last.finish_reason == "cancelled"
        reason = last.finish_reason if last.finish_reason in ("eos", "stop") else "length"
        return Answer(
            text="".join(delta.text for delta in self._deltas),
            tokens=tuple(token for delta in self._deltas for token in delta.tokens),
            finish_reason=reason,
            stats=last.stats,
            prompt_tokens=last.prompt_tokens,
            truncated_by=(self._cut or "shutdown") if cancelled else None,
            logprobs=tuple(one for delta in self._deltas for one in delta.logprobs),
        )

    def close(self) -> None:
        """Free the engine's slots, whether or not the answer was finished."""
        if not self.finished:
            self._handle.cancel()

    async def _next(self) -> Delta:
        while True:
            if self._cut is None and (cut := self._deadline.passed()):
                self._cut = cut
                self._handle.cancel()
            try:
                async with asyncio.timeout(self._patience()):
                    return await self._queue.get()
            except TimeoutError:
                await asyncio.sleep(0)  # an engine's last words come before its end
                if self._queue.empty():
                    self._check_engine()

    def _patience(self) -> float:
        return POLL_S if self._cut else min(POLL_S, max(self._deadline.remaining(), 0))

    def _check_engine(self) -> None:
        overdue = self._cut is not None and self._deadline.remaining() < -CANCEL_GRACE_S
        if overdue or not self._engine.alive:
            raise RequestError(500, "engine_dead", "the engine stopped while generating")

    def _too_late(self) -> RequestError:
        why = "the server is shutting down" if self._cut != "deadline" else "the deadline passed"
        message = f"{why} before the first token"
        return RequestError(503, "deadline_exceeded", message, retry_after=5)


def start(
    engine: Engine,
    prompt: Sequence[int],
    choices: Sequence[SamplingParams],
    deadline: Deadline,
    began: float,
) -> tuple[Generation, ...]:
    """Submit a prompt once for each choice, or not at all; raises what the engine raises."""
    generations: list[Generation] = []
    try:
        for params in choices:
            timeline = Timeline(deadline.owner.clock, began)
            generations.append(Generation(engine, prompt, params, deadline, timeline))
    except SpecInferError:
        for generation in generations:
            generation.close()
        raise
    return tuple(generations)


def _sink(queue: "asyncio.Queue[Delta]") -> Callable[[Delta], None]:
    """Return a callback for the engine's thread; a loop that has closed has no reader left."""
    loop = asyncio.get_running_loop()

    def sink(delta: Delta) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(queue.put_nowait, delta)

    return sink


@contextlib.contextmanager
def engine_errors(prompt_field: str) -> Iterator[None]:
    """Turn the engine's refusals into RequestErrors."""
    try:
        yield
    except ContextLengthError as error:
        raise RequestError(400, "context_length_exceeded", str(error), field=prompt_field) from None
    except QueueFullError as error:
        raise RequestError(429, "queue_full", str(error), retry_after=1) from None
    except EngineDeadError:
        raise RequestError(500, "engine_dead", "the engine has failed") from None
    except ParameterError as error:
        field = prompt_field if error.field == "prompt" else error.field
        message = f"{field}: {error.message}"
        raise RequestError(400, "invalid_parameter", message, field=field) from None
    except SpecInferError as error:
        raise RequestError(400, "invalid_request", str(error)) from None
