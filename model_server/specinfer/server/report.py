"""What one request came to: the record that metrics, log lines and spans are made from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from specinfer.request import Delta
from specinfer.server.dialects.totals import Totals

CLIENT_GONE = "client_gone"


@dataclass(slots=True)
class Timeline:
    """When each step's tokens arrived.  Seconds of a monotonic clock."""

    clock: Callable[[], float]
    began: float
    marks: list[tuple[float, int]] = field(default_factory=list, init=False)  # when, how many

    def note(self, delta: Delta) -> None:
        if delta.tokens:
            self.marks.append((self.clock(), len(delta.tokens)))

    @property
    def total_s(self) -> float:
        return self.clock() - self.began

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return self.marks[0][0] - self.began if self.marks else None

    @property
    def itl_s(self) -> list[float]:
        """Inter-token latency of each token after the first step, a step's tokens sharing it."""
        return [
            (now - before) / count
            for (before, _), (now, count) in zip(self.marks, self.marks[1:], strict=False)
            for _ in range(count)
        ]


@dataclass(frozen=True, slots=True)
class Caller:
    """What the request told about itself besides its body."""

    route: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One request, finished one way or another."""

    caller: Caller
    dialect: str
    outcome: str  # "ok", CLIENT_GONE or an error's code
    totals: Totals | None  # of an answered request
    timelines: tuple[Timeline, ...]  # one for each choice
    total_s: float

    @property
    def generated_tokens(self) -> int:
        """Tokens shown, those of an answer that came to nothing included."""
        return sum(count for timeline in self.timelines for _, count in timeline.marks)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token of the first choice to have one."""
        known = (timeline.ttft_s for timeline in self.timelines)
        return min((seconds for seconds in known if seconds is not None), default=None)

    @property
    def itl_s(self) -> list[float]:
        return [seconds for timeline in self.timelines for seconds in timeline.itl_s]

    @property
    def tokens_per_second(self) -> float:
        """Of the whole request, its wait included."""
        return self.generated_tokens / self.total_s if self.total_s else 0.0


class Observer(Protocol):
    """Somebody who wants to know of every finished request."""

    def finished(self, report: Report) -> None: ...
