"""What the sampling kernels are given: how rows are warped, and the draws of token trees."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from specinfer_kernels.errors import KernelError

Rule = Literal["multi_step", "traversal"]
RULES: tuple[Rule, ...] = ("multi_step", "traversal")
COLDEST = 1e-30  # a temperature by which no difference of logits overflows; lower ones count as it


@dataclass(frozen=True, slots=True)
class Warp:
    """How each row of logits becomes the law it is sampled from; [N] each, where the rows are."""

    temperature: Tensor  # float32, above 0
    top_k: Tensor  # int32; 0: all
    top_p: Tensor  # float32, in (0, 1]
    min_p: Tensor  # float32, in [0, 1]

    def check(self, rows: Tensor) -> None:
        """Raise KernelError where this does not fit rows [N, V]."""
        for part in fields(self):
            dtype = torch.int32 if part.name == "top_k" else torch.float32
            require(part.name, getattr(self, part.name), (len(rows),), dtype, rows.device)


@dataclass(frozen=True, slots=True)
class Draws:
    """The draws of B token trees, D in all, linked as verification meets them (depth first).

    Tensors are int32 and lie where the laws are.  Nodes are numbered within their tree, 0 the
    root; `above`, `below` and `following` number the draws of the whole batch.
    """

    starts: Tensor  # [B + 1]: tree b's draws are starts[b] to starts[b + 1] - 1, maybe none
    roots: Tensor  # [B]: node n of tree b has its LLM law in row roots[b] + n
    parents: Tensor  # [D]: the node beneath which it was drawn
    children: Tensor  # [D]: the node it drew
    tokens: Tensor  # [D]
    proposal: Tensor  # [D]: which of `proposals` it was drawn from; -1: chosen outright
    without: Tensor  # [D, W]: tokens drawn before from the same law without replacement, then -1
    below: Tensor  # [D]: first draw beneath the child; -1: none, or (traversal) visited before
    following: Tensor  # [D]: next draw beneath the same parent; -1: none
    above: Tensor  # [D]: the draw that led to its parent; -1: the parent is the root
    proposals: Sequence[Tensor]  # the distinct SSM laws, [V] each, in the LLM laws' type

    @property
    def trees(self) -> int:
        return len(self.roots)

    def check(self, laws: Tensor) -> None:
        """Raise KernelError where these do not fit laws [N, V]."""
        count, device = len(self.tokens), laws.device
        shapes: dict[str, tuple[int, ...]] = {
            "starts": (self.trees + 1,),
            "roots": (self.trees,),
            "without": (count, self.without.shape[-1]),
        }
        for part in fields(self):
            if part.name != "proposals":
                shape = shapes.get(part.name, (count,))
                require(part.name, getattr(self, part.name), shape, torch.int32, device)
        for proposal in self.proposals:
            require("a proposal", proposal, laws.shape[1:], laws.dtype, device)


def require(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """Raise KernelError unless a tensor is contiguous and as said."""
    found = tuple(tensor.shape), tensor.dtype, tensor.device
    if found != (tuple(shape), dtype, device) or not tensor.is_contiguous():
        wanted = f"{tuple(shape)} {dtype} on {device}"
        raise KernelError(
            f"{name} is {found[0]} {found[1]} on {found[2]}, strides {tensor.stride()}; "
            f"it must be {wanted}, contiguous"
        )


def require_rows(name: str, rows: Tensor) -> None:
    """Raise KernelError unless rows are [N, V], V at least 1, of a type that can be computed in."""
    if rows.dim() != 2 or rows.shape[1] == 0 or not rows.is_contiguous():
        found = f"{tuple(rows.shape)}, strides {rows.stride()}"
        raise KernelError(f"{name} are {found}; they must be [N, V], contiguous")
    if rows.dtype not in (torch.float32, torch.float64):
        raise KernelError(f"{name} are {rows.dtype}; they must be float32 (float64 for reference)")
