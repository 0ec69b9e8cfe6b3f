"""Operators of torch that a CPU has not: what CUDA's take and mean, by those it has."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specinfer.testing.card.errors import CardError

LANES = 32  # of a warp, among which packed weights are spread
TILE = 8, 16  # outputs and inputs of a tile


def own(name: str) -> Callable[..., Any] | None:
    """Return what stands in for an operator by torch's name for it, if anything does."""
    known: dict[str, Callable[..., Any]] = {
        "_convert_weight_to_int4pack": pack_int4,
        "_weight_int4pack_mm": times_int4,
        "_int_mm": times_int8,
        "histc": count,
    }
    return known.get(name)


def pack_int4(pairs: Tensor, tiles: int) -> Tensor:
    """Pack bytes [N, K / 2], the even input's level in the high half; here they stay in order."""
    outputs, inputs = pairs.shape[0], 2 * pairs.shape[1]
    fits = outputs % TILE[0] == 0 and inputs % (tiles * TILE[1]) == 0
    if pairs.dtype != torch.uint8 or not pairs.is_contiguous() or not fits:
        raise CardError(f"_convert_weight_to_int4pack: {pairs.dtype} of {outputs} by {inputs}")
    shape = outputs // TILE[0], inputs // (tiles * TILE[1]), LANES, tiles // 2
    return pairs.clone().view(torch.int32).view(shape)


def times_int4(rows: Tensor, packed: Tensor, group: int, scales: Tensor) -> Tensor:
    """Multiply bfloat16 rows [M, K]; scales [K / group, N, 2] hold scale and middle."""
    if rows.dtype != torch.bfloat16 or packed.dim() != 4 or not rows.is_contiguous():
        raise CardError(f"_weight_int4pack_mm: rows are {rows.dtype}, weights {packed.dim()}-d")
    outputs = packed.shape[0] * TILE[0]
    pairs = packed.reshape(outputs, -1).view(torch.uint8)
    levels = torch.stack([pairs >> 4, pairs & 15], dim=2).view(outputs, -1, group)
    scale, middle = scales.float().permute(2, 1, 0)
    weight = (levels.float() - 8) * scale[..., None] + middle[..., None]
    product: Tensor = (rows.float() @ weight.flatten(1).T).bfloat16()
    return product


def count(values: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Count numbers by their size; a CPU counts no integers."""
    return torch.histc(values.float(), *args, **kwargs).to(values.dtype)


def times_int8(one: Tensor, other: Tensor) -> Tensor:
    """Multiply int8 [M, K] by [K, N]; CUDA's refuses up to 16 rows, and odd sizes."""
    if one.shape[0] <= 16 or one.shape[1] % 8 or other.shape[1] % 8:
        raise CardError(f"_int_mm: {tuple(one.shape)} by {tuple(other.shape)}")
    return torch._int_mm(one, other)
