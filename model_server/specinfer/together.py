"""Sampling for a whole batch at once, where kernels do it (paper, section 4.3).

On a GPU what one request decides alone costs launches and a transfer of its own; drafting and
verification therefore put their questions together.  A CPU's rows are looked at one by one.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specinfer.choices import SeededChoices
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.warp import COLDEST, LEAST
from specinfer_kernels import Warp


def foreseen(request: Request) -> SeededChoices | None:
    """Return a sampled request's choices where they can be made together with others'.

    None otherwise: kernels know no typical-p.
    """
    choices, params = request.choices, request.params
    together = not params.greedy and params.typical_p == 1 and isinstance(choices, SeededChoices)
    return choices if together else None  # type: ignore[return-value]


def warp_columns(
    params: Sequence[SamplingParams], counts: Sequence[int], vocab: int
) -> dict[str, NDArray[np.generic]]:
    """Return how rows of vocab logits become laws, [N] each; counts: rows of each request."""
    each = {
        "temperature": np.array([max(p.temperature, COLDEST) for p in params], dtype=np.float32),
        "top_k": np.array([p.top_k if p.top_k < vocab else 0 for p in params], dtype=np.int32),
        "top_p": np.array([max(p.top_p, LEAST) for p in params], dtype=np.float32),
        "min_p": np.array([p.min_p for p in params], dtype=np.float32),
    }
    return {name: column.repeat(counts) for name, column in each.items()}


def warp_of(columns: Mapping[str, Tensor]) -> Warp:
    """Return those columns, brought to the device, as the kernels want them."""
    return Warp(*(columns[name] for name in ("temperature", "top_k", "top_p", "min_p")))
