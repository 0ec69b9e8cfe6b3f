"""What a forward pass costs by requests and rows: measured at start-up, corrected by every step.

A pass over one sequence's rows is timed before anything is served.  What that leaves out (many
sequences, their contexts, how unevenly rows are spread, a busy machine) is learnt from the passes
themselves: a common pace that follows quickly, and for each size of batch and number of extra
rows a slow correction that fades when nothing confirms it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Costs = NDArray[np.float64]

ROWS = (1, 2, 4, 8, 16, 32, 64)
RUNS = 4  # a point, of which the best counts: noise only ever adds
PACE = 0.2  # weight of a new pass in the common pace
OUTLIER = 1.5  # a pass further off than this factor is counted as just so far
STEADY = 24.0  # passes that a correction remembers
FADE = 0.995  # what a correction keeps of its evidence at each pass
PROVEN = 3.0  # evidence without which a plain pass is made: about one in sixty
PRIOR = 1.0  # passes' worth of belief that a correction is that of its neighbours
SIZES = 10  # extra rows are told apart by log2 of one more than their number, up to this
FAR = 64  # times the last measured point, from where on a line is no longer drawn out


@dataclass(slots=True)
class _Correction:
    """A fading mean of log(observed / expected)."""

    weight: float = 0.0
    mean: float = 0.0

    def add(self, off: float) -> None:
        self.weight = min(self.weight + 1, STEADY)
        self.mean += off / (self.weight + PRIOR)


Cells = dict[int, _Correction]  # by log2 of one more than the rows beside the roots


class CostModel:
    """Milliseconds of a pass; requests' roots count as rows."""

    def __init__(self, costs: Sequence[float], rows: Sequence[int] = ROWS) -> None:
        """Start from one cost a point; more rows never cost less, whatever noise says."""
        rising = np.maximum.accumulate(np.asarray(costs, dtype=float))
        slope = (rising[-1] - rising[-2]) / (rows[-1] - rows[-2])
        self._rows = np.array([*rows, rows[-1] * FAR], dtype=float)
        self._costs = np.append(rising, rising[-1] + slope * rows[-1] * (FAR - 1))
        self._pace = 0.0  # log of observed / measured at start-up, all passes alike
        self._cells: dict[int, Cells] = {}  # by log2 of the requests

    @classmethod
    def measured(cls, measure: Callable[[int], float], rows: Sequence[int] = ROWS) -> "CostModel":
        """Time each point; in rounds, so that a disturbance does not hit one point alone."""
        rounds = [[measure(count) for count in rows] for _ in range(RUNS)]
        return cls([min(runs) for runs in zip(*rounds, strict=True)], rows)

    def cost(self, requests: int, rows: int) -> float:
        """Return the milliseconds of a pass over rows, a root for each request among them."""
        return float(self.costs(requests, np.array([rows]))[0])

    def costs(self, requests: int, rows: Rows) -> Costs:
        """Return the milliseconds of a pass over each number of rows."""
        cells = self._cells.get(_size(requests), {})
        learnt = np.interp(_extra(requests, rows), range(SIZES + 1), _believed(cells))
        costs: Costs = np.interp(rows, self._rows, self._costs) * np.exp(learnt + self._pace)
        return np.maximum.accumulate(costs)

    def knows_plain(self, requests: int) -> bool:
        """Tell whether a pass over the roots alone has been seen lately at this batch size.

        Only then is there something to compare a tree's cost with.
        """
        cell = self._cells.get(_size(requests), {}).get(0)
        return cell is not None and cell.weight >= PROVEN

    def observe(self, requests: int, rows: int, milliseconds: float) -> None:
        """Learn from a pass whose rows were roots and the trees below them, no prompts."""
        off = _off(milliseconds, self.cost(requests, rows))
        cells = self._cells.setdefault(_size(requests), {})
        for correction in cells.values():
            correction.weight *= FADE
        extra = min(SIZES, round(float(_extra(requests, np.array(rows)))))
        cells.setdefault(extra, _Correction()).add(off)
        self._pace += PACE * off


class FlatCost(CostModel):
    """The cost of a pass that reads its weights from afar, which hides what its rows cost.

    Told apart by rows, such passes differ by noise alone: seconds of it, on a busy machine.
    """

    def __init__(self, milliseconds: float) -> None:
        super().__init__([milliseconds, milliseconds], (1, 64))

    def knows_plain(self, requests: int) -> bool:
        """Tell that plain passes need not be made: they cost what all others do."""
        return True

    def observe(self, requests: int, rows: int, milliseconds: float) -> None:
        """Learn the common pace."""
        self._pace += PACE * _off(milliseconds, self.cost(requests, rows))


def _off(found: float, expected: float) -> float:
    """Return how far a pass was off, as a logarithm."""
    limit = math.log(OUTLIER)
    return max(-limit, min(limit, math.log(found / expected)))


def _believed(cells: Cells) -> list[float]:
    """Return each cell's mean, drawn towards that of its batch size as far as it lacks proof."""
    total = sum(cell.weight for cell in cells.values())
    base = sum(cell.weight * cell.mean for cell in cells.values()) / (total + PRIOR)
    known = [cells.get(extra) or _Correction() for extra in range(SIZES + 1)]
    return [(cell.weight * cell.mean + PRIOR * base) / (cell.weight + PRIOR) for cell in known]


def _size(requests: int) -> int:
    return round(math.log2(requests))


def _extra(requests: int, rows: Rows) -> Costs:
    extra: Costs = np.log2(1 + np.maximum(0, rows - requests))
    return extra
