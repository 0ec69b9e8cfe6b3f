"""What a request's drafts take beside models' passes, which a tree has to pay for as well.

Looking up, merging and weighing are Python: a few tenths of a millisecond a request, nothing beside
a pass of 40 ms and a tenth of one over eight rows of int8 weights.
"""

import time
from collections.abc import Callable, Sequence

from specinfer.draft.drafter import Drafter
from specinfer.request import Request
from specinfer.token_tree import TokenTree

WEIGHT = 0.05  # of a step in the mean
OUTLIER = 3.0  # a step dearer than this many means counts as just so many


class Upkeep:
    """Milliseconds a request, a fading mean that one disturbance moves little."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._mean: float | None = None
        self._started = self._passes = 0.0

    def begin(self) -> None:
        """Start the clock of a step."""
        self._started, self._passes = self._now(), 0.0

    def propose(self, drafter: Drafter, requests: Sequence[Request]) -> list[TokenTree]:
        """Let a drafter propose; the passes of a model are not counted here."""
        before = self._now()
        trees = drafter.propose(requests)
        if drafter.runs_model:
            self._passes += self._now() - before
        return trees

    def end(self, requests: int) -> None:
        """Learn from a step that so many requests were drafted for."""
        spent = (self._now() - self._started - self._passes) * 1e3 / requests
        if self._mean is None:
            self._mean = spent
        self._mean += WEIGHT * (min(spent, OUTLIER * self._mean) - self._mean)

    def cost(self, requests: int) -> float:
        """Return the milliseconds that drafting for so many requests is expected to take."""
        return (self._mean or 0.0) * requests
