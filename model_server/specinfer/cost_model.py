"""What a step costs by requests and rows: passes measured at start-up, corrected by every step.

A pass over one sequence's rows is timed before anything is served.  What that leaves out (the rest
of a step, many sequences, their contexts, how unevenly rows are spread, a busy machine) is learnt
from the steps themselves: a common pace that follows plain steps quickly, and for each size of
batch and number of extra rows a slow correction that fades when nothing confirms it.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

# Dense where trees are: a decoder that takes rows eight at a time has steps, which a line between
# 8 and 16 rows would hide.
ROWS = (1, 2, 3, 4, 6, 8, 9, 12, 16, 17, 24, 32, 64)
RUNS = 3  # a point, of which the best counts: noise only ever adds
PACE = 0.2  # weight of a new plain step in the common pace; trees would pass for a slow machine
OUTLIER = 1.5  # a step further off than this factor is counted as just so far
STEADY = 24.0  # steps that a correction remembers
FADE = 0.995  # what a correction keeps of its evidence at each step
PROVEN = 5.0  # evidence without which a plain step is made: about one in forty
PRIOR = 1.0  # steps' worth of belief that a correction is that of its neighbours
SIZES = 10  # extra rows are told apart by log2 of one more than their number, up to this
MOST = 64  # extra rows that are weighed
FRESH = 16  # steps for which weighed costs are kept: making them takes 0.1 ms


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Costs as of some step."""

    step: int
    costs: list[float]
    cheapest: float


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
    """Milliseconds of a step; requests' roots count as rows."""

    def __init__(self, costs: Sequence[float], rows: Sequence[int] = ROWS) -> None:
        """Start from one cost a point; more rows never cost less, whatever noise says."""
        self._rows = list(rows)
        self._costs = [max(costs[: place + 1]) for place in range(len(costs))]
        self._pace = 0.0  # log of observed / measured at start-up, all steps alike
        self._cells: dict[int, Cells] = {}  # by log2 of the requests
        self._weighed: dict[tuple[int, int], _Weighed] = {}
        self._steps = 0

    @classmethod
    def measured(cls, measure: Callable[[int], float], rows: Sequence[int] = ROWS) -> "CostModel":
        """Time each point; in rounds, so that a disturbance does not hit one point alone."""
        rounds = [[measure(count) for count in rows] for _ in range(RUNS)]
        return cls([min(runs) for runs in zip(*rounds, strict=True)], rows)

    def cost(self, requests: int, rows: int) -> float:
        """Return the milliseconds of a step of so many rows, a root for each request among them."""
        return self._corrected(requests, rows, self._believed(requests))

    def costs(self, requests: int, rows: int) -> list[float]:
        """Return the milliseconds with 0 … MOST rows more, never falling, as of lately."""
        return self._lately(requests, rows).costs

    def cheapest(self, requests: int, rows: int) -> float:
        """Return the least that a row more costs, of all numbers of rows more, as of lately."""
        return self._lately(requests, rows).cheapest

    def knows_plain(self, requests: int) -> bool:
        """Tell whether a step over the roots alone has been seen lately at this batch size.

        Only then is there something to compare a tree's cost with.
        """
        cell = self._cells.get(_size(requests), {}).get(0)
        return cell is not None and cell.weight >= PROVEN

    def observe(self, requests: int, rows: int, milliseconds: float) -> None:
        """Learn from a step whose rows were roots and the trees below them, no prompts."""
        off = _off(milliseconds, self.cost(requests, rows))
        cells = self._cells.setdefault(_size(requests), {})
        for correction in cells.values():
            correction.weight *= FADE
        extra = min(SIZES, round(_extra(requests, rows)))
        cells.setdefault(extra, _Correction()).add(off)
        self._pace += PACE * off if extra == 0 else 0.0
        self._steps += 1

    def _lately(self, requests: int, rows: int) -> _Weighed:
        known = self._weighed.get((requests, rows))
        if known is None or self._steps - known.step >= FRESH:
            believed = self._believed(requests)
            each = (self._corrected(requests, rows + more, believed) for more in range(MOST + 1))
            plain, *more = costs = list(accumulate(each, max))
            cheapest = min((dearer - plain) / extra for extra, dearer in enumerate(more, 1))
            known = _Weighed(self._steps, costs, cheapest)
            if rows == requests:  # one with prompts is hardly met again
                self._weighed[requests, rows] = known
        return known

    def _corrected(self, requests: int, rows: int, believed: Sequence[float]) -> float:
        """Draw a line between the points around, or on through the last two, and correct it."""
        points, costs = self._rows, self._costs
        right = min(max(1, bisect_left(points, rows)), len(points) - 1)
        left = right - 1
        slope = (costs[right] - costs[left]) / (points[right] - points[left])
        line = costs[left] + slope * (max(rows, points[0]) - points[left])
        extra = _extra(requests, rows)
        below = int(extra)
        low, high = believed[below], believed[below + 1]
        return line * math.exp(low + (extra - below) * (high - low) + self._pace)

    def _believed(self, requests: int) -> list[float]:
        """Return each cell's mean, drawn towards that of its batch size as it lacks proof."""
        cells = self._cells.get(_size(requests), {})
        total, base = PRIOR, 0.0
        for cell in cells.values():
            total += cell.weight
            base += cell.weight * cell.mean
        base /= total
        believed = [base] * (SIZES + 2)
        for extra, cell in cells.items():
            believed[extra] = (cell.weight * cell.mean + PRIOR * base) / (cell.weight + PRIOR)
        if 0 in cells:
            believed[0] = cells[0].mean  # dear trees say nothing of it
        return believed


class FlatCost(CostModel):
    """The cost of a step that reads its weights from afar, which hides what its rows cost.

    Told apart by rows, such passes differ by noise alone: seconds of it, on a busy machine.
    """

    def __init__(self, milliseconds: float) -> None:
        super().__init__([milliseconds, milliseconds], (1, 64))

    def knows_plain(self, requests: int) -> bool:
        """Tell that plain steps need not be made: they cost what all others do."""
        return True

    def observe(self, requests: int, rows: int, milliseconds: float) -> None:
        """Learn the common pace."""
        self._pace += PACE * _off(milliseconds, self.cost(requests, rows))
        self._steps += 1


def _off(found: float, expected: float) -> float:
    """Return how far a step was off, as a logarithm."""
    limit = math.log(OUTLIER)
    return max(-limit, min(limit, math.log(found / expected)))


def _size(requests: int) -> int:
    return round(math.log2(requests))


def _extra(requests: int, rows: int) -> float:
    return min(float(SIZES), math.log2(1 + max(0, rows - requests)))
