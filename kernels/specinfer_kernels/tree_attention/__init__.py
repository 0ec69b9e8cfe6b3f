"""Attention of token trees over a paged KV cache (paper, section 4.2): choice of a backend."""

import torch
from torch import Tensor

from specinfer_kernels.backend import choose_backend
from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch
from specinfer_kernels.tree_attention.plan import AttentionPlan

__all__ = ["AttentionPlan", "TreeBatch", "plan_attention", "tree_attention"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def plan_attention(
    batch: TreeBatch,
    *,
    dtype: torch.dtype,
    backend: str | None = None,
) -> AttentionPlan:
    """Do all of a step's work that no layer changes; dtype is that of queries and pools.

    Never waits for a GPU.  Raises KernelError where the backend cannot serve the batch.
    """
    if dtype not in FLOATS:
        raise KernelError(f"attention in {dtype}; choose from {', '.join(map(str, FLOATS))}")
    match choose_backend(batch.device, backend):
        case "triton":
            from specinfer_kernels.tree_attention.triton import TritonPlan

            return TritonPlan.of(batch, dtype)
        case "cpu":
            from specinfer_kernels.tree_attention.cpu import CpuPlan

            return CpuPlan.of(batch, dtype)
        case _:
            from specinfer_kernels.tree_attention.reference import ReferencePlan

            return ReferencePlan(batch, dtype)


def tree_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    plan: AttentionPlan,
    *,
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
) -> Tensor:
    """Attend every row to its context and its ancestors, itself included.

    query is [N, H, D]; keys and values are pools [S, K, D] which hold the new rows' entries
    already.  scale multiplies the scores; softcap c turns a score s into c * tanh(s / c);
    window w hides what lies w or more positions back.  Returns [N, H, D] in query's dtype;
    raises KernelError, by name, for arguments that do not fit the plan or each other.
    """
    return plan.attend(query, keys, values, scale=scale, softcap=softcap, window=window)
