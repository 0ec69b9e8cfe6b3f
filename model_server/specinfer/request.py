"""One request: what was asked and what has been emitted."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from specinfer.grammar.constraint import Constraint
from specinfer.sampling import SamplingParams as SamplingParams
from specinfer.tally import SpeculationStats, Tally
from specinfer.text import Piece, TextStream

if TYPE_CHECKING:  # a server that has yet to load its engine starts without torch
    from torch import Tensor

    from specinfer.choices import Choices

# lost: the process that computed it has died; another is being started.
FinishReason = Literal["length", "eos", "stop", "cancelled", "error", "lost"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's natural log-probability under the LLM itself, and the likeliest ones there."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step adds to the answer; the last one carries finish_reason and stats."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason | None
    stats: SpeculationStats | None
    prompt_tokens: int
    error: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()  # of `tokens`, where asked for

    @classmethod
    def end(cls, reason: FinishReason, error: str) -> "Delta":
        """Return the last delta of a request that no engine knows any more."""
        return cls("", (), reason, Tally().stats(), 0, error)


Sink = Callable[[Delta], None]


@dataclass(slots=True, eq=False)
class Request:
    """A request in flight.  Only the engine's thread touches it, but for `cancelled`."""

    prompt: tuple[int, ...]
    params: SamplingParams
    sink: Sink
    choices: "Choices"
    text: TextStream
    eos: frozenset[int]
    limit: int  # tokens that prompt and answer may fill together
    constraint: Constraint | None = None  # where the answer stands in its grammar
    arrived: float = field(default_factory=time.perf_counter)
    tokens: list[int] = field(init=False)  # prompt and answer
    adjusted: bool = field(init=False)  # whether its logits are never taken as they are
    state: "Tensor | None" = None  # [H]: what the LLM's head chose the last token by, where kept
    tally: Tally = field(default_factory=Tally)
    cancelled: bool = False
    finish_reason: FinishReason | None = None
    _logprobs: list[TokenLogprob] = field(default_factory=list)  # of tokens not shown yet

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)
        params = self.params
        self.adjusted = params.penalised or bool(params.logit_bias) or self.constraint is not None

    @property
    def emitted(self) -> int:
        return len(self.tokens) - len(self.prompt)

    @property
    def room(self) -> int:
        """Tokens that may still be emitted."""
        return min(
            self.params.max_new_tokens - self.emitted,
            self.limit - len(self.tokens),
        )

    @property
    def complete(self) -> bool:
        """Whether the grammar lets nothing follow what has been emitted."""
        return self.constraint is not None and self.constraint.over

    @property
    def repeatable(self) -> bool:
        """Whether the answer, sampled, is to come out the same whenever its seed is given."""
        return self.params.seed is not None and not self.params.greedy

    def extend(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob] = ()) -> Delta:
        """Append a step's tokens up to the first end of the answer, and say what became visible."""
        pieces: list[Piece] = []
        self._logprobs.extend(logprobs)
        for token in tokens:
            self.finish_reason = self._end_before(token)
            if self.finish_reason is not None:
                break
            self.tokens.append(token)
            pieces.append(self.text.push(token))
            self.finish_reason = self._end_after()
            if self.finish_reason is not None:
                break
        return self._delta(pieces, self._fault())

    def finish(self, reason: FinishReason, error: str | None = None) -> Delta:
        """End the request from outside a step."""
        self.finish_reason = reason
        return self._delta([], error)

    def with_stats(self, delta: Delta) -> Delta:
        """Return a last delta with the figures as they stand once its own step is counted."""
        return replace(delta, stats=self.tally.stats())

    def _end_before(self, token: int) -> FinishReason | None:
        """Tell whether token ends the answer without being part of it."""
        if self.constraint is not None and self.constraint.problem:
            return "error"
        if token in self.params.stop_token_ids:
            return "stop"
        if token in self.eos and not self.params.ignore_eos:
            return "eos"
        return None if self.constraint is None or self.constraint.advance(token) else "error"

    def _end_after(self) -> FinishReason | None:
        if self.text.stopped:
            return "stop"
        if self.complete:
            return "eos"
        return "length" if self.room <= 0 else None

    def _fault(self) -> str | None:
        if self.constraint is None or self.finish_reason != "error":
            return None
        return f"grammar: {self.constraint.problem or 'it does not allow the token chosen'}"

    def _delta(self, pieces: list[Piece], error: str | None = None) -> Delta:
        over = self.finish_reason is not None
        if over:
            pieces.append(self.text.flush())
        tokens = tuple(token for piece in pieces for token in piece.tokens)
        shown, self._logprobs = self._logprobs[: len(tokens)], self._logprobs[len(tokens) :]
        return Delta(
            text="".join(piece.text for piece in pieces),
            tokens=tokens,
            logprobs=tuple(shown),
            finish_reason=self.finish_reason,
            stats=self.tally.stats() if over else None,
            prompt_tokens=len(self.prompt),
            error=error,
        )
