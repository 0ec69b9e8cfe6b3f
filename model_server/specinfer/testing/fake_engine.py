"""An engine without a model, for testing what stands around the real one.

Its tokens are the UTF-8 bytes of a text and its answer is the prompt again and again, several
tokens a step, so that a step often ends inside a character.  The end of an answer, its text and
its figures are made by the real engine's own `Request`.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice

from specinfer.choices import SeededChoices
from specinfer.errors import ContextLengthError, EngineDeadError, ParameterError, QueueFullError
from specinfer.request import Delta, Request, SamplingParams, Sink, TokenLogprob
from specinfer.text import TextStream

TOKENS_A_STEP = 3
EOS = 256  # one past the last byte; a prompt of token ids may hold it


@dataclass(slots=True, eq=False)
class FakeHandle:
    """One request, with an account of what the engine spent on it."""

    request: Request
    steps: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        self.cancelled.set()


@dataclass(frozen=True, slots=True)
class FakePages:
    """A KV cache of which one page is in use."""

    used: int = 1
    pages: int = 8


@dataclass(slots=True)
class FakeEngine:
    """Answers every prompt with itself, each request in a thread of its own."""

    max_context: int = 4096
    queue_limit: int = 64
    step_s: float = 0.0  # how long a step takes
    fail_at_step: int | None = None  # a request that gets so far ends with an error
    die_at_step: int | None = None  # ... or takes the engine with it, without a word
    lose_at_step: int | None = None  # ... or says, dying, that it was lost
    model_id: str = "fake"
    revision: str = "fake-revision"
    alive: bool = True
    cache: FakePages = FakePages()
    requests: list[FakeHandle] = field(default_factory=list)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.encode("".join(message["content"] for message in messages))

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < EOS).decode(errors="replace")

    @property
    def running(self) -> int:
        return sum(not handle.ended.is_set() for handle in self.requests)

    @property
    def queued(self) -> int:
        return 0

    def prepare(self, params: SamplingParams) -> None:
        if params.grammar is not None and params.grammar.text == "(":
            raise ParameterError(params.grammar.field, "is not an expression")

    def submit(self, prompt: Sequence[int], params: SamplingParams, sink: Sink) -> FakeHandle:
        self._check(prompt)
        text = TextStream(self.decode, params.stop)
        choices = SeededChoices(params.seed)
        eos = frozenset({EOS})
        request = Request(tuple(prompt), params, sink, choices, text, eos, self.max_context)
        handle = FakeHandle(request)
        self.requests.append(handle)
        threading.Thread(target=self._run, args=(handle,), daemon=True).start()
        return handle

    def close(self) -> None:
        self.alive = False
        for handle in self.requests:
            handle.cancel()

    def _check(self, prompt: Sequence[int]) -> None:
        if not self.alive:
            raise EngineDeadError("the engine is closed")
        if not prompt or max(prompt) > EOS:
            raise ParameterError("prompt", "must be tokens of the vocabulary, at least one")
        if len(prompt) >= self.max_context:
            raise ContextLengthError(len(prompt), self.max_context)
        if self.running >= self.queue_limit:
            raise QueueFullError(self.queue_limit)

    def _run(self, handle: FakeHandle) -> None:
        answer = cycle(handle.request.prompt)
        while handle.request.finish_reason is None:
            cancelled = handle.cancelled.wait(self.step_s)
            if handle.steps + 1 == self.die_at_step:
                self.alive = False
                return
            delta = handle.request.finish("cancelled") if cancelled else self._step(handle, answer)
            if delta.finish_reason is not None:
                handle.ended.set()
            handle.request.sink(delta)

    def _step(self, handle: FakeHandle, answer: Iterator[int]) -> Delta:
        handle.steps += 1
        request = handle.request
        if handle.steps == self.fail_at_step:
            return request.finish("error", "planned failure")
        if handle.steps == self.lose_at_step:
            self.alive = False
            return request.finish("lost", "planned death")
        before = request.emitted
        tokens = list(islice(answer, min(TOKENS_A_STEP, request.room)))
        delta = request.extend(tokens, _logprobs(tokens, request.params.logprobs))
        emitted = request.emitted - before
        request.tally.verify_ms += self.step_s * 1e3
        request.tally.count(
            nodes=TOKENS_A_STEP + 1,
            emitted=emitted,
            drafted=[["fake"]] * TOKENS_A_STEP,
            accepted=[["fake"]] * max(emitted - 1, 0),
        )
        return delta if delta.finish_reason is None else replace(delta, stats=request.tally.stats())


def _logprobs(tokens: Sequence[int], top: int | None) -> list[TokenLogprob]:
    """A chosen token has -0.5, the next byte -1.5, and so on."""
    if top is None:
        return []
    return [
        TokenLogprob(
            token, -0.5, tuple(((token + place) % EOS, -0.5 - place) for place in range(top))
        )
        for token in tokens
    ]
