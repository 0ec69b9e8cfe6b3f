"""What a backend prepares once per step and then runs in every layer."""

from typing import Protocol

import torch
from torch import Tensor

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
        """Return the rows' attention output, [N, H, D], for arguments already checked."""
        ...
