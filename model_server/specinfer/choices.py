"""Every random decision the engine takes, behind one small interface.

Production draws from a request's own generator, so a seeded answer does not depend on what
else is in the batch.  Tests substitute a source that walks every outcome, so the code that
serves is the code proved exact.
"""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 256  # tokens summed before any is looked at


class Choices(Protocol):
    """A source of random decisions."""

    def accepts(self, probability: float) -> bool:
        """Say yes with the given probability (clipped to [0, 1]); never at 0."""

    def draw(self, law: Tensor) -> int:
        """Draw an index from law, [V], which sums to 1; never one of probability 0."""


class SeededChoices:
    """Choices made by one request's own torch generator."""

    def __init__(self, seed: int | None) -> None:
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    def accepts(self, probability: float) -> bool:
        return self._uniform() < probability

    def draw(self, law: Tensor) -> int:
        """Invert the distribution function at one uniform number.

        float64: a float32 running sum over 150k tokens is off by more than a rare token's mass.
        """
        if law.device.type == "cpu":
            return inverted(law.numpy(), self._uniform())
        return int(inverted_rows(law[None], self._uniform()))

    def _uniform(self) -> float:
        return float(torch.rand((), dtype=torch.float64, generator=self._generator))


def inverted(law: NDArray[np.floating], uniform: float) -> int:
    """Return where a law's distribution function passes a number in [0, 1), in two steps.

    Sums of blocks, then a running sum within one: a third of the time of one over all.
    """
    whole = len(law) // BLOCK * BLOCK
    sums = law[:whole].reshape(-1, BLOCK).sum(1, dtype=np.float64)
    rising = np.append(sums, law[whole:].sum(dtype=np.float64)).cumsum()
    point = rising[-1] * uniform
    block = _passed(rising, point)
    inside = law[block * BLOCK : (block + 1) * BLOCK].cumsum(dtype=np.float64)
    return block * BLOCK + _passed(inside, point - (rising[block - 1] if block else 0.0))


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
