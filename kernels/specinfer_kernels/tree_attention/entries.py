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

    shape: tuple[int, ...]  # [1, K, L, D]; flat [K, L, D]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def over(cls, pool: Tensor, first: int, count: int, *, flat: bool) -> "InPlace":
        """Prepare for pools of this shape and layout."""
        view = pool[first : first + count].transpose(0, 1)
        view = view if flat else view[None]
        offset = int(view.storage_offset() - pool.storage_offset())
        return cls(tuple(view.shape), view.stride(), offset)

    def of(self, pool: Tensor, part: int) -> Tensor:
        """Return [1, K, L, D] of a pool, or flat: a view."""
        return pool.as_strided(self.shape, self.strides, pool.storage_offset() + self.offset)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The keys of B requests, copied from wherever their pages lie."""

    index: Tensor  # of the pool's units, in the order of the copies
    copies: tuple[Tensor, Tensor]  # [B * K * n, size * D], or [B * n, size * K * D]
    shape: tuple[int, ...]  # of a copy: [B, K, n * size, D], flat [B * K, n * size, D]
    start: int
    end: int
    by_head: bool

    @classmethod
    def over(cls, pool: Tensor, units: Units, room: Room, *, flat: bool) -> "Gathered":
        """Prepare for pools of this shape and layout; raises KernelError where they have none.

        Who wants them flat reads keys and values one after the other: they share a copy.
        """
        slots, heads, width = pool.shape
        by_head = pool.transpose(0, 1).is_contiguous()
        if not by_head and not pool.is_contiguous():
            raise KernelError(f"pools are neither [S, K, D] nor [K, S, D]: strides {pool.stride()}")
        if slots % units.size:
            units = units.by_slot()
        index = torch.from_numpy(units.listed)
        if by_head:  # head k's units come behind those of all heads before it
            index = index[:, None] + torch.arange(heads)[:, None] * (slots // units.size)
        shape = index.numel(), units.size * width * (1 if by_head else heads)
        keys = room.take("keys", shape, pool.dtype)
        values = keys if flat else room.take("values", shape, pool.dtype)
        requests, length = len(units.listed), units.listed.shape[1] * units.size
        found = (requests * heads,) if flat else (requests, heads)
        end = units.start + units.count
        return cls(
            index.flatten(), (keys, values), (*found, length, width), units.start, end, by_head
        )

    def of(self, pool: Tensor, part: int) -> Tensor:
        """Return [B, K, L, D], or flat, of the keys' pool (part 0) or the values' (part 1).

        The next call for the part overwrites it; flat, any next call.
        """
        copy = self.copies[part]
        whole = pool.transpose(0, 1) if self.by_head else pool
        torch.index_select(whole.view(-1, copy.shape[1]), 0, self.index, out=copy)
        if self.by_head:
            return copy.view(self.shape)[..., self.start : self.end, :]
        *found, length, width = self.shape
        heads = pool.shape[1]
        by_slot = copy.view(-1, length, heads, width)[:, self.start : self.end].transpose(1, 2)
        return by_slot.reshape(*found, -1, width)
