"""Where a CPU finds one call's keys and values: in place, or copied from scattered pages."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.tiles import Units


@dataclass(frozen=True, slots=True)
class Room:
    """A plan's scratch, whose pages would else be mapped anew in every layer.

    Whoever takes a name shares its memory with all others who do.
    """

    kept: dict[tuple[str, torch.dtype], Tensor] = field(default_factory=dict)

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        kept = self.kept.get((name, dtype))
        if kept is None or len(kept) < count:
            kept = self.kept[name, dtype] = torch.empty(count, dtype=dtype)
        return kept[:count].view(shape)


@dataclass(frozen=True, slots=True)
class InPlace:
    """The keys of one request, a run of slots.

    One operator a pool: with 128 keys those around the fused one are a fifth of the time.
    """

    shape: tuple[int, ...]  # [1, K, L, D]
    strides: tuple[int, ...]
    offset: int
    ahead: bool  # keys are read once, for nothing, before they are used

    @classmethod
    def over(cls, pool: Tensor, first: int, count: int, *, ahead: bool) -> "InPlace":
        """Prepare for pools of this shape and layout."""
        slots, heads, width = pool.shape
        per_slot, per_head, per_number = pool.stride()
        if first + count > slots:
            raise KernelError(f"the block tables reach beyond the pools' {slots} slots")
        strides = (0, per_head, per_slot, per_number)
        return cls((1, heads, count, width), strides, first * per_slot, ahead)

    def of(self, pool: Tensor, part: int) -> Tensor:
        """Return [1, K, L, D] of a pool: a view."""
        found = pool.as_strided(self.shape, self.strides, pool.storage_offset() + self.offset)
        if self.ahead and part == 0:
            found.amax()
        return found


@dataclass(frozen=True, slots=True)
class Gathered:
    """The keys of B requests, copied from wherever their pages lie."""

    index: Tensor  # of the pool's units, in the order of the copies
    units: tuple[int, int]  # a pool's shape: [K * S / size, size * D], or [S / size, size * K * D]
    copies: tuple[Tensor, Tensor]  # [B * K * n, size * D], or [B * n, size * K * D]
    found: tuple[Tensor, Tensor]  # their views [B, K, L, D]

    @classmethod
    def over(cls, pool: Tensor, units: Units, room: Room, *, shared: bool) -> "Gathered":
        """Prepare for pools of this shape and layout; raises KernelError where they have none.

        Who reads keys and values one after the other may have them share a copy.
        """
        slots, heads, width = pool.shape
        by_head = pool.transpose(0, 1).is_contiguous()
        if not by_head and not pool.is_contiguous():
            raise KernelError(f"pools are neither [S, K, D] nor [K, S, D]: strides {pool.stride()}")
        if slots % units.size:
            units = units.by_slot()
        if units.listed.max() >= slots // units.size:
            raise KernelError(f"the block tables reach beyond the pools' {slots} slots")
        index = torch.from_numpy(units.listed)
        if by_head:  # head k's units come behind those of all heads before it
            index = index[:, None] + torch.arange(heads)[:, None] * (slots // units.size)
        numbers = units.size * width * (1 if by_head else heads)
        shape = index.numel(), numbers
        keys = room.take("keys", shape, pool.dtype)
        values = keys if shared else room.take("values", shape, pool.dtype)

        def view(copy: Tensor) -> Tensor:
            if by_head:
                whole = copy.view(len(units.listed), heads, -1, width)
            else:
                whole = copy.view(len(units.listed), -1, heads, width).transpose(1, 2)
            return whole[:, :, units.start : units.start + units.count]

        source = pool.numel() // numbers, numbers
        return cls(index.flatten(), source, (keys, values), (view(keys), view(values)))

    def of(self, pool: Tensor, part: int) -> Tensor:
        """Return [B, K, L, D] of the keys' pool (part 0) or the values' (part 1).

        The next call for the part overwrites it, or any next call where they share a copy.
        """
        units = pool.as_strided(self.units, (self.units[1], 1))
        torch.index_select(units, 0, self.index, out=self.copies[part])
        return self.found[part]
