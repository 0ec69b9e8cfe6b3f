"""How long a request may still take, and calls that give up in time."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")
Clock = Callable[[], float]  # seconds, monotonic


class DeadlineError(Exception):
    """A call did not end in time."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a clock."""

    clock: Clock
    at: float

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> "Deadline":
        """Return the deadline that many seconds from now."""
        return cls(clock, clock() + seconds)

    def left(self) -> float:
        """Return the seconds that are left, never below 0."""
        return max(0.0, self.at - self.clock())


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Return what the call returns, or raise DeadlineError after that many seconds.

    boto3 has one read timeout per client, while every request has its own deadline, so the call
    gets a thread.  A daemon thread: one that is left behind must not hold the process.
    """
    outcome: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except BaseException as error:
            outcome.put((None, error))

    threading.Thread(target=run, name="within", daemon=True).start()
    try:
        result, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise DeadlineError(f"no answer in {seconds:.1f} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # the call's own result, None included
