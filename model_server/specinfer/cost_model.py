"""What a forward pass over so many rows costs, measured at start-up and corrected by every step."""

import bisect
from collections.abc import Callable, Sequence

ROWS = (1, 2, 8, 32)
RUNS = 3  # a point, of which the best counts: noise only ever adds
DEARER, CHEAPER = 0.1, 0.5  # weight of a step that cost more, or less, than expected


class CostModel:
    """Milliseconds a pass by number of rows: straight lines between measured points."""

    def __init__(self, costs: Sequence[float], rows: Sequence[int] = ROWS) -> None:
        """Start from one cost a point; more rows never cost less, whatever noise says."""
        self._rows = list(rows)
        self._costs = list(costs)

    @classmethod
    def measured(cls, measure: Callable[[int], float], rows: Sequence[int] = ROWS) -> "CostModel":
        """Time each point."""
        return cls([min(measure(count) for _ in range(RUNS)) for count in rows], rows)

    def cost(self, rows: int) -> float:
        """Return the milliseconds of a pass over rows."""
        costs = self._rising()
        right = min(max(bisect.bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        (r0, r1), (c0, c1) = self._rows[right - 1 : right + 1], costs[right - 1 : right + 1]
        return c0 + (c1 - c0) * (rows - r0) / (r1 - r0)

    def observe(self, rows: int, milliseconds: float) -> None:
        """Correct the point nearest to rows, and all others half as much: what slows one pass
        down, a longer context or a busier machine, slows the others too."""
        off = min(4.0, milliseconds / self.cost(rows)) - 1
        ratio = 1 + off * (DEARER if off > 0 else CHEAPER)
        near = min(range(len(self._rows)), key=lambda i: abs(self._rows[i] - rows))
        for i in range(len(self._costs)):
            self._costs[i] *= ratio if i == near else (1 + ratio) / 2

    def _rising(self) -> list[float]:
        rising: list[float] = []
        for cost in self._costs:
            rising.append(max(cost, rising[-1] if rising else 0.0))
        return rising
