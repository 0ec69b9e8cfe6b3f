"""Keep the accepted path: move its cache entries to where the context goes on (paper, 4.2)."""

import torch
from torch import Tensor

from specinfer_kernels.backend import choose_backend
from specinfer_kernels.errors import KernelError

__all__ = ["commit_kv"]


def commit_kv(kv: Tensor, source: Tensor, target: Tensor, *, backend: str | None = None) -> None:
    """Set kv[:, :, target] = kv[:, :, source] in place, reading everything before writing.

    kv is [L, 2, S, K, D]: keys and values of all layers.  source and target are [M] int64 slots;
    no slot may be a target twice.  Never waits for a GPU.
    """
    if kv.dim() != 5 or kv.shape[1] != 2:
        raise KernelError(f"kv is {tuple(kv.shape)}; commit_kv moves [L, 2, S, K, D]")
    if source.shape != target.shape or source.dim() != 1:
        shapes = f"{tuple(source.shape)} and {tuple(target.shape)}"
        raise KernelError(f"source and target are {shapes}; both must be [M]")
    if not source.dtype == target.dtype == torch.int64:
        raise KernelError(f"source and target are {source.dtype}, {target.dtype}; not int64")
    if choose_backend(kv.device, backend) == "triton":
        from specinfer_kernels.commit_kv.triton import move

        move(kv, source, target)
    else:
        kv.index_copy_(2, target, kv.index_select(2, source))
