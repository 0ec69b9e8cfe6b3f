"""The LLM's laws after the nodes of a tree, warped when a verifier first looks at them.

A walk sees the nodes of one path and turns back at the first rejection; warping all rows of a
tree of 32 nodes over 49k tokens costs more than the walk itself.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specinfer.choices import Law
from specinfer.sampling import SamplingParams
from specinfer.warp import exponentials, warp


class Laws(Protocol):
    """Laws, or logits, by node; a tensor [N, V] is one."""

    def __getitem__(self, node: int, /) -> Tensor:
        """Return those after node, [V]."""


class WarpedRows:
    """Rows of logits [N, V], each turned into its law once."""

    def __init__(self, rows: Laws, params: SamplingParams) -> None:
        self._rows = rows
        self._params = params
        self._laws: dict[int, Tensor] = {}

    def __getitem__(self, node: int, /) -> Tensor:
        if node not in self._laws:
            self._laws[node] = warp(self._rows[node][None], self._params)[0]
        return self._laws[node]


class Weights(Protocol):
    """What is in proportion to laws, by node: enough for who only draws."""

    def __getitem__(self, node: int, /) -> Law:
        """Return those after node, [V]."""


class TemperedRows:
    """Weights by logits [N, V] and a temperature alone."""

    def __init__(self, rows: NDArray[np.floating], temperature: float) -> None:
        self._rows, self._temperature = rows, temperature

    def __getitem__(self, node: int, /) -> NDArray[np.floating]:
        return exponentials(self._rows[node], self._temperature)


def weights(rows: Laws, params: SamplingParams) -> Weights:
    """Return the rows' weights for drawing, by the shortest way."""
    if isinstance(rows, Tensor) and rows.device.type == "cpu" and not params.filtered:
        return TemperedRows(rows.numpy(), params.temperature)
    return WarpedRows(rows, params)
