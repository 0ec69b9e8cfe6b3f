"""Tree attention on a CPU: a few fused-attention calls over runs, or gathered pages, of the pool.

It is fastest where the entries of one head lie beside each other, pools [S, K, D] that are views
of [K, S, D]: what a request holds in order is then just what the fused operator wants.  In small
trees the G query heads that share a key/value head become G times as many rows of it, so a key is
read once for all of them; masks are made once per step and serve every layer.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch
from specinfer_kernels.tree_attention.tiles import (
    Tile,
    Units,
    check_ancestors,
    tiles_of,
    tree_bias,
)

# Rows up to which heads become rows: with them a call takes 0.9 of the time at 1 row, 0.85 at 8,
# 1.0 at 16 and 1.05 at 24 in float32, 0.2, 0.7, 0.9 and 1.0 in bfloat16 (context 1k, one thread).
PACKED_ROWS = 16
Room = dict[tuple[int, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class InPlace:
    """The keys of one request, a run of slots.

    One operator a pool: with 128 keys those around the fused one are a fifth of the time.
    """

    shape: tuple[int, ...]  # [1, K, L, D]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def over(cls, pool: Tensor, first: int, count: int) -> "InPlace":
        """Prepare for pools of this shape and layout."""
        view = pool[None, first : first + count].transpose(1, 2)
        offset = int(view.storage_offset() - pool.storage_offset())
        return cls(tuple(view.shape), view.stride(), offset)

    def of(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return [1, K, L, D] of both pools: views."""
        k, v = keys.storage_offset() + self.offset, values.storage_offset() + self.offset
        return (
            keys.as_strided(self.shape, self.strides, k),
            values.as_strided(self.shape, self.strides, v),
        )


@dataclass(frozen=True, slots=True)
class Gathered:
    """The keys of B requests, copied from wherever their pages lie."""

    index: Tensor  # of the pool's units, in the order of the copies
    copies: tuple[Tensor, Tensor]  # [B * K * n, size * D], or [B * n, size * K * D]
    requests: int
    start: int
    end: int
    by_head: bool

    @classmethod
    def over(cls, pool: Tensor, units: Units, room: Room) -> "Gathered":
        """Prepare for pools of this shape and layout; raises KernelError where they have none."""
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
        if shape not in room:
            room[shape] = pool.new_empty(shape), pool.new_empty(shape)
        end = units.start + units.count
        return cls(index.flatten(), room[shape], len(units.listed), units.start, end, by_head)

    def of(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return [B, K, L, D] of both pools; the next call overwrites them."""
        k, v = self.copies
        return self._gather(keys, k), self._gather(values, v)

    def _gather(self, pool: Tensor, copy: Tensor) -> Tensor:
        _, heads, width = pool.shape
        whole = pool.transpose(0, 1) if self.by_head else pool
        torch.index_select(whole.view(-1, copy.shape[1]), 0, self.index, out=copy)
        if self.by_head:
            return copy.view(self.requests, heads, -1, width)[:, :, self.start : self.end]
        found = copy.view(self.requests, -1, heads, width)[:, self.start : self.end]
        return found.transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Call:
    """A tile as one kind of layer sees it: B * T rows, L keys each.

    Packed, the heads that share a key/value head are rows of it: [B, K, T * G, D] for
    [B, H, T, D].
    """

    source: slice | Tensor | None  # [B * T] rows of the batch, padding included; None: all
    target: slice | Tensor  # those that are no padding
    real: Tensor | None  # where they are among the B * T; None: all, in order
    entries: InPlace | Gathered
    bias: Tensor | None  # [B, 1, T * G, L] or [B, 1, T, L]
    requests: int
    rows_each: int  # T
    group: int  # G; 1 where heads are not packed

    def queries(self, query: Tensor) -> Tensor:
        """Return [B, K, T * G, D], or unpacked [B, H, T, D]."""
        _, heads, width = query.shape
        if self.source is not None:
            query = query[self.source]
        if self.rows_each == 1:
            return query.view(self.requests, heads // self.group, self.group, width)
        if self.group == 1:
            return query.view(self.requests, -1, heads, width).transpose(1, 2)
        rows = query.view(self.requests, -1, heads // self.group, self.group, width)
        return rows.transpose(1, 2).reshape(self.requests, heads // self.group, -1, width)

    def rows(self, attended: Tensor, heads: int) -> Tensor:
        """Turn what queries' shape became into the tile's real rows, [<= B * T, H, D]."""
        requests, kv_heads, filled, width = attended.shape
        if self.rows_each > 1:
            if self.group > 1:
                attended = attended.reshape(requests, kv_heads, -1, self.group, width)
            attended = attended.transpose(1, 2)
        rows = attended.reshape(-1, heads, width)
        return rows if self.real is None else rows[self.real]


@dataclass(frozen=True, slots=True)
class CpuPlan:
    batch: TreeBatch
    dtype: torch.dtype
    tiles: tuple[Tile, ...]
    # What the first layer of its kind prepares for the others, and room for gathered keys and
    # values, whose pages would else be mapped anew in every layer.
    calls: dict[object, tuple[Call, ...]] = field(default_factory=dict)
    room: Room = field(default_factory=dict)

    @classmethod
    def of(cls, batch: TreeBatch, dtype: torch.dtype) -> "CpuPlan":
        first, last = int(batch.starts[0]), int(batch.starts[-1])
        if first != 0 or (last != batch.rows and not batch.padded):
            raise KernelError(f"starts run from {first} to {last}, not 0 to {batch.rows}")
        tiles = tiles_of(batch)
        check_ancestors(batch)
        return cls(batch, dtype, tiles)

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scale: float,
        softcap: float | None,
        window: int | None,
    ) -> Tensor:
        heads = query.shape[1]
        kind = window, heads, keys.shape, keys.stride()
        calls = self.calls.get(kind)
        if calls is None:
            calls = self.calls[kind] = self._calls(window, heads, keys)
        if values.stride() != keys.stride():
            raise KernelError(f"keys lie by {keys.stride()}, values by {values.stride()}")
        out = None
        for call in calls:
            q = call.queries(query)
            k, v = call.entries.of(keys, values)
            if softcap is None:
                attended = scaled_dot_product_attention(
                    q, k, v, attn_mask=call.bias, scale=scale, enable_gqa=call.group == 1
                )
            else:
                attended = _softcapped(q, k, v, call.bias, scale, softcap)
            rows = call.rows(attended, heads)
            if call.source is None:
                return rows
            if out is None:
                out = torch.zeros_like(query) if self.batch.padded else torch.empty_like(query)
            out[call.target] = rows
        return torch.zeros_like(query) if out is None else out

    def _calls(self, window: int | None, heads: int, pool: Tensor) -> tuple[Call, ...]:
        if window is not None and window > self.batch.max_total:
            window = None
        if all(tile.sees_all(window) for tile in self.tiles):
            tree = None
        else:
            tree = tree_bias(self.batch, self.dtype)
        return tuple(self._call(tile, tree, window, heads, pool) for tile in self.tiles)

    def _call(
        self, tile: Tile, tree: Tensor | None, window: int | None, heads: int, pool: Tensor
    ) -> Call:
        group = heads // pool.shape[1] if self._packs(tile, pool) else 1
        skip = tile.unseen(self.batch, window)
        bias = None
        if tree is not None and not tile.sees_all(window):
            bias = tile.bias(tree, self.batch, window, skip)[:, None]
            if group > 1 and tile.rows > 1:
                bias = bias.repeat_interleave(group, dim=2)
        source, real = tile.query_rows(), tile.real_rows()
        target = source if real is None or isinstance(source, slice) else source[real]
        whole = real is None and source == slice(0, self.batch.rows)
        entries: InPlace | Gathered
        if tile.run is None:
            entries = Gathered.over(pool, tile.units(self.batch, skip), self.room)
        else:
            entries = InPlace.over(pool, tile.run + skip, tile.keys - skip)
        pieces = len(tile.pieces)
        return Call(
            None if whole else source, target, real, entries, bias, pieces, tile.rows, group
        )

    def _packs(self, tile: Tile, pool: Tensor) -> bool:
        """Tell whether heads become rows: in float32 not where that leaves a thread idle."""
        if tile.rows > PACKED_ROWS:
            return False
        even = len(tile.pieces) * pool.shape[1] % torch.get_num_threads() == 0
        return even or self.dtype.itemsize < 4


def _softcapped(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, softcap: float
) -> Tensor:
    """Attend with capped scores, which fused attention does not offer; at least in float32."""
    k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = torch.tanh(q.to(wide) @ k.to(wide).transpose(-1, -2) * (scale / softcap)) * softcap
    weights = (scores if bias is None else scores + bias).softmax(-1)
    return (weights @ v.to(wide)).to(q.dtype)
