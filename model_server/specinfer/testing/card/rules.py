"""Which operations CUDA refuses, and which make the host wait for it, by torch's names for them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specinfer.testing.card.errors import CardError
from specinfer.testing.card.tensor import CardTensor

# A size, or the value itself, is on the device alone.
READS = {
    "_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero", "nonzero_numpy",
    "argwhere", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount",
    "one_hot", "tensor_split", "combinations",
}  # fmt: skip
# Numbers of no dimension may come from the host: they become arguments of a kernel.
TAKES_SCALARS = {"fill", "fill_", "masked_fill", "masked_fill_", "where", "index_put", "index_put_"}
INDEXED = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "mv", "addmv", "einsum", "dot"}
FLAGS = (torch.bool, torch.uint8)


def refuse(func: Any, name: str, args: Sequence[Any], tensors: Sequence[Tensor]) -> None:
    """Raise CardError for operands of two devices, and for what has no kernel."""
    index = [i for i in args[1] if i is not None] if name in INDEXED else []
    for tensor in tensors:
        if isinstance(tensor, CardTensor):
            if name in PRODUCTS and not tensor.is_floating_point():
                raise CardError(f"{name}: not implemented for {tensor.dtype} on cuda")
        elif not (_is_scalar(func, name, tensor, args) or any(tensor is i for i in index)):
            raise CardError(
                f"{name}: expected all tensors to be on the same device, but found"
                f" {tuple(tensor.shape)} on cpu beside cuda:0"
            )


def wait(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """Return how an operation makes the host wait, if it does."""
    if name in READS:
        return "read"
    if name == "repeat_interleave" and _counts(args) and kwargs.get("output_size") is None:
        return "read"
    if name not in INDEXED:
        return None
    index = [i for i in args[1] if i is not None]
    if any(i.dtype in FLAGS for i in index):
        return None if _masks(name, args, index) else "read"
    sent = index if name in ("index", "_unsafe_index") else [*index, args[2]]
    return "send" if any(not isinstance(tensor, CardTensor) for tensor in sent) else None


def _is_scalar(func: Any, name: str, tensor: Tensor, args: Sequence[Any]) -> bool:
    """Tell whether a tensor of the host passes as a number."""
    if tensor.dim() or (name.endswith("_") and tensor is args[0]):
        return False
    return torch.Tag.pointwise in func.tags or name in TAKES_SCALARS


def _counts(args: Sequence[Any]) -> bool:
    """Tell whether how often each entry is repeated is in a tensor."""
    return any(isinstance(count, Tensor) for count in args[1:2]) or len(args) == 1


def _masks(name: str, args: Sequence[Any], index: Sequence[Tensor]) -> bool:
    """Tell whether the host's one number is written where one mask says so: nothing is listed."""
    if "put" not in name or len(index) > 1 or (len(args) > 3 and args[3]):
        return False
    return args[2].numel() == 1 and not isinstance(args[2], CardTensor)
