"""Linears laid out for decoder.c, in int8 or bfloat16, and what they compute."""

import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from specinfer.lean.linear import CHUNK, LEVELS, quantize_rows, quantize_weight
from specinfer.lean.native.library import Kind

GROUP = 32  # outputs that are computed together
STEP = 4  # bytes of an output's weights that lie together
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

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return zeros that nobody else has."""
        size = math.prod(shape) * dtype.itemsize
        taken, self._room = self._room[:size], self._room[-(-size // ALIGNMENT) * ALIGNMENT :]
        return taken.view(dtype).view(*shape)


class Grouped:
    """A linear's weights as decoder.c reads them, [out / GROUP, in / step, GROUP, step]."""

    kind: Kind
    weight: Tensor
    scale: Tensor | None = None  # [out], padded
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, block: Block):
        """Lay out a weight [out, in] in the block, some rows at a time, the last group padded."""
        self.out, self.inputs = weight.shape
        groups, step = -(-self.out // GROUP), STEP // dtype.itemsize
        self.weight = block.take((groups, self.inputs // step, GROUP, step), dtype)
        self.bias = None if bias is None else bias.float()
        for start in range(0, self.out, CHUNK):
            rows = self.stored(weight[start : start + CHUNK], start)
            rows = pad(rows, (0, 0, 0, -len(rows) % GROUP))
            place = self.weight[start // GROUP :][: len(rows) // GROUP]
            place.copy_(rows.view(-1, GROUP, self.inputs // step, step).transpose(1, 2))

    def stored(self, rows: Tensor, start: int) -> Tensor:
        """Return some rows of the weight in the type they are kept in."""
        raise NotImplementedError

    def plain(self) -> Tensor:
        """Return the weight [out, in] as it was laid out."""
        return self.weight.transpose(1, 2).reshape(-1, self.inputs)[: self.out]

    def __call__(self, x: Tensor, /) -> Tensor:
        """Compute in torch what decoder.c does: x [N, in] float32 -> [N, out]."""
        y = self.product(x)
        return y if self.bias is None else y + self.bias

    def product(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Packed(Grouped):
    """Weights + 128 in int8, activations quantized by spans of columns."""

    kind: Kind = "int8"

    def __init__(self, weight: Tensor, bias: Tensor | None, *, block: Block) -> None:
        """Quantize a weight [out, in] into the block; in must be a multiple of 4."""
        # In the block as well: on the heap they would lie behind each weight's temporaries, whose
        # memory then never went back (260 MB of a 135M model).
        self.scale = block.take((-(-len(weight) // GROUP) * GROUP,), torch.float32)
        super().__init__(weight, bias, torch.int8, block)
        self.weight.view(torch.uint8).bitwise_xor_(ZERO)  # two's complement plus 128

    def stored(self, rows: Tensor, start: int) -> Tensor:
        assert self.scale is not None
        levels, self.scale[start : start + len(rows)] = quantize_weight(rows)
        return levels

    def product(self, x: Tensor) -> Tensor:
        assert self.scale is not None
        weight = (self.plain().view(torch.uint8).float() - ZERO) * self.scale[: self.out, None]
        y = torch.zeros(len(x), self.out)
        for start in range(0, self.inputs, SPAN):
            rows, largest = quantize_rows(x[:, start : start + SPAN])
            y += (rows.round() @ weight[:, start : start + SPAN].T) * (largest / LEVELS)
        return y


class Rounded(Grouped):
    """Weights in bfloat16, activations rounded to it, sums in float32."""

    kind: Kind = "bf16"

    def __init__(self, weight: Tensor, bias: Tensor | None, *, block: Block) -> None:
        """Round a weight [out, in] into the block; in must be even."""
        super().__init__(weight, bias, torch.bfloat16, block)

    def stored(self, rows: Tensor, start: int) -> Tensor:
        return rows.to(torch.bfloat16)

    def product(self, x: Tensor) -> Tensor:
        return x.to(torch.bfloat16).float() @ self.plain().float().T
