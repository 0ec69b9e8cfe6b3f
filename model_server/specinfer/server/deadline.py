"""When a generation must stop: its own limit, or the server's shutdown, whichever is sooner."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Clock = Callable[[], float]  # monotonic seconds
Cut = Literal["deadline", "shutdown"]


@dataclass(slots=True)
class Deadlines:
    """Hands out deadlines and can shorten all of them at once."""

    clock: Clock
    _shutdown_at: float = field(default=math.inf, init=False)

    def begin(self, seconds: float) -> "Deadline":
        return Deadline(self, self.clock() + seconds)

    def shut_down_in(self, seconds: float) -> None:
        """From now on nothing runs longer than this."""
        self._shutdown_at = min(self._shutdown_at, self.clock() + seconds)

    @property
    def shutdown_at(self) -> float:
        return self._shutdown_at


@dataclass(frozen=True, slots=True)
class Deadline:
    """One generation's limit."""

    owner: Deadlines
    at: float

    def remaining(self) -> float:
        """Seconds left, negative once it has passed."""
        return min(self.at, self.owner.shutdown_at) - self.owner.clock()

    def passed(self) -> Cut | None:
        if self.remaining() > 0:
            return None
        return "deadline" if self.at <= self.owner.shutdown_at else "shutdown"
