"""An int8 linear laid out for decoder.c, and what it computes."""

import mmap
from collections.abc import Iterable

import torch
from torch import Tensor

from specinfer.lean.linear import LEVELS, quantize_rows, quantize_weight

GROUP = 32  # outputs that are computed together
ALIGNMENT = 64  # bytes, a register and a cache line
ZERO = 128  # added to an activation's level, which the processor takes unsigned


class Packed:
    """Weights [out / GROUP, in / 4, GROUP, 4], the last group padded with zeros."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Quantize a weight [out, in]; in must be a multiple of 4."""
        levels, scales = quantize_weight(weight.float())
        self.out, self.inputs = levels.shape
        padding = -self.out % GROUP
        levels = torch.nn.functional.pad(levels, (0, 0, 0, padding))
        grouped = levels.view(-1, GROUP, self.inputs // 4, 4)
        self.weight = grouped.transpose(1, 2).contiguous()
        self.scale = torch.nn.functional.pad(scales, (0, padding))
        self.shift = levels.sum(1, dtype=torch.int32) * ZERO
        self.bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor, /) -> Tensor:
        """Compute in torch what decoder.c does: x [N, in] float32 -> [N, out]."""
        rows, scales = quantize_rows(x)
        levels = self.weight.transpose(1, 2).reshape(-1, self.inputs)[: self.out]
        sums = rows.round().double() @ levels.double().T
        y = sums.float() * (self.scale[: self.out] * (scales / LEVELS))
        return y if self.bias is None else y + self.bias


def settle(linears: Iterable[Packed]) -> None:
    """Move all weights, one after the other, into one block of huge pages where there are some.

    A pass reads every weight once, so a quarter of its time went into finding small pages.
    """
    linears = list(linears)
    size = sum(linear.weight.numel() + ALIGNMENT for linear in linears)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    room = torch.frombuffer(block, dtype=torch.int8)
    start = 0
    for linear in linears:
        count = linear.weight.numel()
        place = room[start : start + count].view(linear.weight.shape)
        linear.weight = place.copy_(linear.weight)
        start += -(-count // ALIGNMENT) * ALIGNMENT
