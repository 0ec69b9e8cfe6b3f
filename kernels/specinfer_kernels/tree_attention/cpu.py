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
from specinfer_kernels.tree_attention.entries import Gathered, InPlace, Room
from specinfer_kernels.tree_attention.products import Products, pays
from specinfer_kernels.tree_attention.tiles import (
    Tile,
    check_ancestors,
    tiles_of,
    tree_bias,
)

# Rows up to which heads become rows: with them a call takes 0.9 of the time at 1 row, 0.85 at 8,
# 1.0 at 16 and 1.05 at 24 in float32, 0.2, 0.7, 0.9 and 1.0 in bfloat16 (context 1k, one thread).
PACKED_ROWS = 16


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
    products: Products | None  # None: the fused operator
    requests: int
    rows_each: int  # T
    group: int  # G; 1 where heads are not packed

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, softcap: float | None
    ) -> Tensor:
        """Return the tile's real rows, [<= B * T, H, D], for all of a layer's tensors."""
        q = self.queries(query)
        if self.products is not None:
            attended = self.products.attend(q, keys, values, scale, softcap)
        else:
            k, v = self.entries.of(keys, 0), self.entries.of(values, 1)
            attended = scaled_dot_product_attention(
                q, k, v, attn_mask=self.bias, scale=scale, enable_gqa=self.group == 1
            )
        return self.rows(attended, query.shape[1])

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
    # What the first layer of its kind prepares for the others.
    calls: dict[object, tuple[Call, ...]] = field(default_factory=dict)
    room: Room = field(default_factory=Room)

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
        kind = window, softcap is None, query.shape[1], keys.shape, keys.stride(), values.stride()
        calls = self.calls.get(kind)
        if calls is None:
            if values.stride() != keys.stride():
                raise KernelError(f"keys lie by {keys.stride()}, values by {values.stride()}")
            calls = self._calls(window, softcap is not None, query.shape[1], keys)
            self.calls[kind] = calls
        if len(calls) == 1 and calls[0].source is None:
            return calls[0].attend(query, keys, values, scale, softcap)
        out = torch.zeros_like(query) if self.batch.padded else torch.empty_like(query)
        for call in calls:
            out[call.target] = call.attend(query, keys, values, scale, softcap)
        return out

    def _calls(
        self, window: int | None, capped: bool, heads: int, pool: Tensor
    ) -> tuple[Call, ...]:
        if window is not None and window > self.batch.max_total:
            window = None
        if all(tile.sees_all(window) for tile in self.tiles):
            tree = None
        else:
            tree = tree_bias(self.batch, self.dtype)
        largest_first = reversed(self.tiles)  # so that the others fit the room of the first
        return tuple(self._call(t, tree, window, capped, heads, pool) for t in largest_first)

    def _call(
        self,
        tile: Tile,
        tree: Tensor | None,
        window: int | None,
        capped: bool,
        heads: int,
        pool: Tensor,
    ) -> Call:
        skip = tile.unseen(self.batch, window)
        bias = None
        if tree is not None and not tile.sees_all(window):
            bias = tile.bias(tree, self.batch, window, skip)[:, None]
        multiplies = capped or self._multiplies(tile, heads, pool)
        entries: InPlace | Gathered
        if tile.run is None:
            units = tile.units(self.batch, skip)
            entries = Gathered.over(pool, units, self.room, flat=multiplies)
        else:
            entries = InPlace.over(pool, tile.run + skip, tile.keys - skip, flat=multiplies)
        group, products = 1, None
        if multiplies:
            shape = len(tile.pieces), heads, tile.rows, pool.shape[2]
            keys, seen = tile.keys - skip, max(0, tile.unmasked(window) - skip)
            masked = None if bias is None else bias[..., seen:]
            products = Products.of(
                entries, shape, pool.shape[1], keys, masked, self.dtype, self.room
            )
        elif self._packs(tile, pool):
            group = heads // pool.shape[1]
            if bias is not None and tile.rows > 1:
                bias = bias.repeat_interleave(group, dim=2)
        source, real = tile.query_rows(), tile.real_rows()
        target = source if real is None or isinstance(source, slice) else source[real]
        whole = real is None and source == slice(0, self.batch.rows)
        sizes = len(tile.pieces), tile.rows, group
        return Call(None if whole else source, target, real, entries, bias, products, *sizes)

    def _multiplies(self, tile: Tile, heads: int, pool: Tensor) -> bool:
        """Tell whether products of their own beat the fused operator."""
        by_head = pool.transpose(0, 1).is_contiguous()
        # Several requests' keys by slot are no one product's; in float32 they gain nothing.
        together = len(tile.pieces) == 1 or (by_head and self.dtype.itemsize < 4)
        if not together or not self._even(tile, pool):
            return False
        group = heads // pool.shape[1]
        return pays(self.dtype, group, tile.rows, tile.keys, len(tile.pieces) * heads)

    def _packs(self, tile: Tile, pool: Tensor) -> bool:
        """Tell whether heads become rows: in float32 not where that leaves a thread idle."""
        if tile.rows > PACKED_ROWS:
            return False
        return self.dtype.itemsize < 4 or self._even(tile, pool)

    @staticmethod
    def _even(tile: Tile, pool: Tensor) -> bool:
        """Tell whether all threads have as many key/value heads to read."""
        return len(tile.pieces) * pool.shape[1] % torch.get_num_threads() == 0
