"""Where one request's answer stands in its grammar, and what may follow each path beyond it.

One matcher follows the accepted tokens; a node's state is reached from there along its path and
taken back.  That costs 1.4 µs a token however long the answer is, where a copy of the state per
node grows with it (0.7 ms after 10k tokens).
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]  # [at least V], true where a token may stand


class Matcher(Protocol):
    """A place in a grammar.  One that has met a limit takes no token ever again."""

    def take(self, tokens: Sequence[int]) -> int:
        """Advance by as many of the tokens as the grammar allows; return how many."""

    def give_back(self, count: int) -> None:
        """Undo the last so many tokens."""

    def mask(self) -> Mask:
        """Return which tokens may follow; those that end an answer only where it is complete."""

    def forced(self) -> list[int]:
        """Return the tokens that have to follow, as far as there is no choice."""

    @property
    def over(self) -> bool:
        """Whether nothing may follow but the end."""

    @property
    def problem(self) -> str:
        """Why it takes nothing more; empty when nothing is wrong."""


class Constraint:
    """A grammar at work on one request; belongs to the engine's thread."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._masks: dict[tuple[int, ...], Mask | None] = {}

    @property
    def over(self) -> bool:
        return self._matcher.over

    @property
    def problem(self) -> str:
        return self._matcher.problem

    def advance(self, token: int) -> bool:
        """Take a token into the answer; false if the grammar does not have it."""
        self._masks.clear()
        return self._matcher.take([token]) == 1

    def forced(self) -> list[int]:
        """Return the tokens that the answer has to go on with."""
        return self._matcher.forced()

    def admits(self, path: Sequence[int]) -> bool:
        """Tell whether the answer may go on along a path."""
        taken = self._matcher.take(path)
        self._matcher.give_back(taken)
        return taken == len(path)

    def mask(self, path: Sequence[int]) -> Mask | None:
        """Return what may follow the answer and a path; None after a path that cannot stand."""
        key = tuple(path)
        if key not in self._masks:
            self._masks[key] = self._mask(path)
        return self._masks[key]

    def _mask(self, path: Sequence[int]) -> Mask | None:
        taken = self._matcher.take(path)
        mask = self._matcher.mask() if taken == len(path) else None
        self._matcher.give_back(taken)
        return mask
