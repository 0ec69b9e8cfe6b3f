"""What the gateway tells about itself: figures and timed sections, behind two interfaces."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol


class Meter(Protocol):
    """Takes figures; CloudWatch's unit names."""

    def add(self, name: str, value: float = 1, unit: str = "Count") -> None: ...


class Tracer(Protocol):
    """Takes timed sections of a request."""

    @property
    def header(self) -> str:
        """The trace that this request belongs to, as X-Amzn-Trace-Id has it; empty if none."""

    def section(self, name: str) -> AbstractContextManager[None]:
        """Time a block; an exception marks the section as failed."""

    def past_section(self, name: str, start: float, end: float) -> None:
        """Report what somebody else timed; seconds since the epoch."""


class NoTracer:
    """Traces nothing."""

    header = ""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        yield

    def past_section(self, name: str, start: float, end: float) -> None:
        pass


def report_speculation(meter: Meter, figures: Any) -> None:
    """Add the container's figures of one generation; says nothing when they are not there."""
    if not isinstance(figures, dict):
        return
    names = {
        "DraftedTokens": figures.get("drafted"),
        "AcceptedTokens": figures.get("accepted"),
        "VerifySteps": figures.get("steps"),
        "TokensPerStep": figures.get("tokens_per_step"),
    }
    for name, value in names.items():
        if isinstance(value, int | float):
            meter.add(name, value)
