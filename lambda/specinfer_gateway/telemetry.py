"""What the gateway tells about itself: figures and timed sections, behind two interfaces."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

PHASES = ("queue", "prefill", "ssm", "verify", "commit")


class Meter(Protocol):
    """Takes figures; CloudWatch's unit names."""

    def add(self, name: str, value: float = 1, unit: str = "Count") -> None: ...


class Tracer(Protocol):
    """Takes timed sections of a request."""

    @property
    def traceparent(self) -> str:
        """The section that is open now, as W3C's traceparent has it; empty if there is none."""

    def section(self, name: str) -> AbstractContextManager[None]:
        """Time a block; an exception marks the section as failed."""

    def past_section(self, name: str, start: float, end: float) -> None:
        """Report what somebody else timed; seconds since the epoch."""


class NoTracer:
    """Traces nothing."""

    traceparent = ""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        yield

    def past_section(self, name: str, start: float, end: float) -> None:
        pass


def meter_generation(
    meter: Meter, seconds: float, tokens: Any, speculation: Mapping[str, Any]
) -> None:
    """Add the figures of one generation; those that the container did not tell are left out."""
    meter.add("InvokeLatency", seconds * 1000, "Milliseconds")
    if isinstance(tokens, int) and seconds > 0:
        meter.add("GeneratedTokens", tokens)
        meter.add("TokensPerSecond", tokens / seconds, "Count/Second")
    drafted, accepted, steps = (speculation.get(k) for k in ("drafted", "accepted", "steps"))
    if isinstance(drafted, int) and isinstance(accepted, int) and isinstance(steps, int):
        meter.add("DraftedTokens", drafted)
        meter.add("AcceptedTokens", accepted)
        if steps:
            meter.add("AcceptedTokensPerStep", accepted / steps)


def trace_generation(
    tracer: Tracer, start: float, end: float, speculation: Mapping[str, Any]
) -> None:
    """Report the container's phases as sections, one after the other, inside start and end.

    The container tells each phase's total, while its steps took turns: the lengths are true, the
    places are not.
    """
    for phase in PHASES:
        ms = speculation.get(f"{phase}_ms")
        if isinstance(ms, int | float):
            until = min(start + ms / 1000, end)
            tracer.past_section(f"model.{phase}", start, until)
            start = until
