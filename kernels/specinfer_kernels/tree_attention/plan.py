"""What a backend prepares once per step and then runs in every layer."""

from typing import Protocol

import torch
from torch import Tensor

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch


class AttentionPlan(Protocol):
    """One step's attention, ready for any layer whose tensors have this dtype."""

    @property
    def batch(self) -> TreeBatch: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scale: float,
        softcap: float | None,
        window: int | None,
    ) -> Tensor:
        """Return the rows' attention output, [N, H, D]; raises what `check` raises."""
        ...


def check(
    plan: AttentionPlan,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    softcap: float | None,
    window: int | None,
) -> None:
    """Raise KernelError, naming what does not fit, unless the plan serves such a layer."""
    rows, heads, width = query.shape
    _, kv_heads, kv_width = keys.shape
    if rows != plan.batch.rows:
        raise KernelError(f"query has {rows} rows; the plan was made for {plan.batch.rows}")
    if keys.shape != values.shape:
        raise KernelError(f"keys {tuple(keys.shape)} and values {tuple(values.shape)} differ")
    if width != kv_width or heads % kv_heads:
        raise KernelError(f"{heads} heads of {width} cannot read {kv_heads} of {kv_width}")
    if not query.dtype == keys.dtype == values.dtype == plan.dtype:
        found = f"{query.dtype}, {keys.dtype}, {values.dtype}"
        raise KernelError(f"query, keys, values are {found}; the plan is for {plan.dtype}")
    if softcap is not None and softcap <= 0:
        raise KernelError(f"softcap is {softcap}; it must be above 0")
    if window is not None and window < 1:
        raise KernelError(f"window is {window}; a row sees at least itself, so 1 or more")
