"""Leaves a failing service alone for a while, so that only the first request waits for it."""

from specinfer_gateway.deadline import Clock


class Breaker:
    """Open for rest_seconds after each failure."""

    def __init__(self, clock: Clock, rest_seconds: float) -> None:
        self._clock = clock
        self._rest_seconds = rest_seconds
        self._until = float("-inf")

    @property
    def open(self) -> bool:
        """Whether the service should not be asked now."""
        return self._clock() < self._until

    def trip(self) -> None:
        """Take note of a failure."""
        self._until = self._clock() + self._rest_seconds
