"""Every random decision the engine takes, behind one small interface.

Production draws from a request's own generator, so a seeded answer does not depend on what
else is in the batch.  Tests substitute a source that walks every outcome, so the code that
serves is the code proved exact.
"""

import random
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Law = Tensor | NDArray[np.floating]

BLOCK = 256  # tokens summed before any is looked at


class Choices(Protocol):
    """A source of random decisions."""

    def accepts(self, probability: float) -> bool:
        """Say yes with the given probability (clipped to [0, 1]); never at 0."""

    def draw(self, law: Law) -> int:
        """Draw an index in proportion to law, [V]; never one of probability 0."""

    def skip(self, count: int) -> None:
        """Pass over count decisions that need not be taken, so that later ones come out the same.

        However a number of decisions is arrived at, step by step or on a device all at once, it
        uses the same random numbers.
        """


class SeededChoices:
    """Choices made by one request's own generator, the same on every device.

    Python's: behind a pass, its caches cold, torch's takes 70 us for a number.
    """

    def __init__(self, seed: int | None) -> None:
        self._uniform = random.Random(seed).random
        self._ahead: list[float] = []  # looked at, and not used yet

    def ahead(self, count: int) -> list[float]:
        """Return the next count uniform numbers; `skip` uses up those that decided something."""
        self._ahead += [self._uniform() for _ in range(count - len(self._ahead))]
        return self._ahead[:count]

    def skip(self, count: int) -> None:
        self.ahead(count)
        del self._ahead[:count]

    def accepts(self, probability: float) -> bool:
        return self._next() < probability

    def draw(self, law: Law) -> int:
        """Invert the distribution function at one uniform number."""
        if isinstance(law, np.ndarray):
            return inverted(law, self._next())
        if law.device.type == "cpu":
            return inverted(law.numpy(), self._next())
        return int(inverted_rows(law[None], self._next()))

    def _next(self) -> float:
        return self._ahead.pop(0) if self._ahead else self._uniform()


def inverted(law: NDArray[np.floating], uniform: float) -> int:
    """Return where a law's distribution function passes a number in [0, 1), in two steps.

    A block is chosen by its sum, then a token within it by a running sum that is drawn out to fit:
    a third of the time of one over all, and however sums are rounded, no token's chance is off by
    more than a few units in the last place.  Running sums are float64: over 150k tokens a float32
    one is off by more than a rare token's mass.
    """
    whole = len(law) // BLOCK * BLOCK
    sums = np.einsum("ij->i", law[:whole].reshape(-1, BLOCK))  # half the time of sum(1)
    if whole < len(law):
        sums = np.append(sums, law[whole:].sum())
    rising = sums.cumsum(dtype=np.float64)
    point = rising[-1] * uniform
    block = _passed(rising, point)
    inside = law[block * BLOCK : (block + 1) * BLOCK].cumsum(dtype=np.float64)
    share = (point - (rising[block - 1] if block else 0.0)) / sums[block]
    return block * BLOCK + _passed(inside, share * inside[-1])


def inverted_rows(laws: Tensor, uniforms: Tensor | float) -> Tensor:
    """Return where each distribution function of laws [R, V] passes its number of [R, 1], [R].

    It is computed where the laws are: of a GPU's only tokens need come back.
    """
    rising = laws.double().cumsum(1)
    found = torch.searchsorted(rising, rising[:, -1:] * uniforms, right=True)
    return found[:, 0].clamp(max=laws.shape[1] - 1)


def _passed(rising: NDArray[np.float64], point: float) -> int:
    """Return the first place beyond a point; rounding may leave none, then the last that rose."""
    place = int(rising.searchsorted(point, side="right"))
    return place if place < len(rising) else int(rising.searchsorted(rising[-1]))
