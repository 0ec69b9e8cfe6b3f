"""An int8 linear laid out for decoder.c, and what it computes."""

import math
import mmap

import torch
from torch import Tensor

from specinfer.lean.linear import CHUNK, LEVELS, quantize_rows, quantize_weight

GROUP = 32  # outputs that are computed together
ALIGNMENT = 64  # bytes, a register and a cache line
ZERO = 128  # added to an activation's level, which the processor takes unsigned


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
    """Weights [out / GROUP, in / 4, GROUP, 4], the last group padded with zeros."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, block: Block) -> None:
        """Quantize a weight [out, in] into the block; in must be a multiple of 4."""
        levels, scales = quantize_weight(weight)
        self.out, self.inputs = levels.shape
        padding = -self.out % GROUP
        levels = torch.nn.functional.pad(levels, (0, 0, 0, padding)) if padding else levels
        grouped = levels.view(-1, GROUP, self.inputs // 4, 4).transpose(1, 2)
        self.weight = block.take(*grouped.shape).copy_(grouped)
        self.scale = torch.nn.functional.pad(scales, (0, padding))
        sums = [rows.sum(1, dtype=torch.int32) for rows in torch.split(levels, CHUNK)]
        self.shift = torch.cat(sums) * ZERO
        self.bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor, /) -> Tensor:
        """Compute in torch what decoder.c does: x [N, in] float32 -> [N, out]."""
        rows, scales = quantize_rows(x)
        levels = self.weight.transpose(1, 2).reshape(-1, self.inputs)[: self.out]
        sums = rows.round().double() @ levels.double().T
        y = sums.float() * (self.scale[: self.out] * (scales / LEVELS))
        return y if self.bias is None else y + self.bias
