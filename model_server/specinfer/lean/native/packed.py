"""An int8 linear laid out for decoder.c, and what it computes."""

import math
import mmap

import torch
from torch import Tensor
from torch.nn.functional import pad

from specinfer.lean.linear import LEVELS, quantize_rows, quantize_weight

GROUP = 32  # outputs that are computed together
ALIGNMENT = 64  # bytes, a register and a cache line
SPAN = 64  # columns of a row with one scale
ZERO = 128  # added to a weight's level, which the processor takes unsigned


class Block:
    """Huge pages, where there are some, handed out piece by piece and real once written to.

    A pass reads every weight once: among small pages a fifth of its time went into finding them.
    """

    def __init__(self, size: int) -> None:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)
        self._room = torch.frombuffer(block, dtype=torch.int8)

    def take(self, *shape: int) -> Tensor:
        """Return int8 zeros that nobody else has."""
        size = math.prod(shape)
        taken, self._room = self._room[:size], self._room[-(-size // ALIGNMENT) * ALIGNMENT :]
        return taken.view(shape)


class Packed:
    """Weights + 128 [out / GROUP, in / 4, GROUP, 4], the last group padded."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, block: Block) -> None:
        """Quantize a weight [out, in] into the block; in must be a multiple of 4."""
        levels, self.scale = quantize_weight(weight)
        self.out, self.inputs = levels.shape
        padding = -self.out % GROUP
        if padding:
            levels = pad(levels, (0, 0, 0, padding))
            self.scale = pad(self.scale, (0, padding))
        grouped = levels.view(-1, GROUP, self.inputs // 4, 4).transpose(1, 2)
        self.weight = block.take(*grouped.shape).copy_(grouped)
        self.weight.view(torch.uint8).bitwise_xor_(ZERO)  # two's complement plus 128
        self.bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor, /) -> Tensor:
        """Compute in torch what decoder.c does: x [N, in] float32 -> [N, out]."""
        levels = self.weight.view(torch.uint8).float() - ZERO
        weight = levels.transpose(1, 2).reshape(-1, self.inputs)[: self.out]
        spans = range(0, self.inputs, SPAN)
        y = torch.zeros(len(x), self.out)
        for part, own in ((x[:, i : i + SPAN], weight[:, i : i + SPAN]) for i in spans):
            rows, largest = quantize_rows(part)
            y += (rows.round() @ own.T) * (largest / LEVELS)
        y *= self.scale[: self.out]
        return y if self.bias is None else y + self.bias
