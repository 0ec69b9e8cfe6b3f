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
from specinfer_kernels.tree_attention.plan import check
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
# Numbers that a thread reads at least where torch has several read a tensor.
SHARE = 1 << 15


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
    bias: Tensor | None  # [B, 1, T, L], packed [B, 1, T * G, L]
    products: Products | None  # None: the fused operator
    softcap: float | None
    apart: tuple[int, ...]  # of queries: [B, T, H, D], packed [B, T, K, G, D]; T = 1: as asked
    asked: tuple[int, ...]  # [B, H, T, D], packed [B, K, T * G, D]
    packed: bool

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Return the tile's real rows, [<= B * T, H, D], for all of a layer's tensors."""
        if self.source is not None:
            query = query[self.source]
        query = query.view(self.apart)
        if self.apart is not self.asked:
            query = query.transpose(1, 2)
            if self.packed:
                query = query.reshape(self.asked)
        if self.products is None:
            seen = self._fused(query, keys, values, scale)
        else:
            seen = self.products.attend(query, keys, values, scale, self.softcap)
        seen = self._rows(seen)
        return seen if self.real is None else seen[self.real]

    def _fused(self, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        return scaled_dot_product_attention(
            query,
            self.entries.of(keys, 0),
            self.entries.of(values, 1),
            attn_mask=self.bias,
            scale=scale,
            enable_gqa=True,
        )

    def _rows(self, seen: Tensor) -> Tensor:
        """Return what queries' shape became as [B * T, H, D]."""
        if self.apart is self.asked:
            return seen.flatten(1, 2)
        if self.packed:
            requests, each, kv_heads, group, width = self.apart
            seen = seen.reshape(requests, kv_heads, each, group, width)
            return seen.transpose(1, 2).reshape(requests * each, -1, width)
        return seen.transpose(1, 2).flatten(0, 1)


@dataclass(frozen=True, slots=True)
class Calls:
    """The tiles of a step that is more than one call for all rows in order."""

    calls: tuple[Call, ...]
    padded: bool

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        out = torch.zeros_like(query) if self.padded else torch.empty_like(query)
        for call in self.calls:
            out[call.target] = call.attend(query, keys, values, scale)
        return out


@dataclass(frozen=True, slots=True)
class CpuPlan:
    batch: TreeBatch
    dtype: torch.dtype
    tiles: tuple[Tile, ...]
    # What the first layer of its kind prepares for the others.
    kinds: dict[object, Call | Calls] = field(default_factory=dict)
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
        kind = (
            query.shape,
            keys.shape,
            values.shape,
            keys.stride(),
            values.stride(),
            query.dtype,
            keys.dtype,
            values.dtype,
            softcap,
            window,
        )
        calls = self.kinds.get(kind)
        if calls is None:
            check(self, query, keys, values, softcap, window)
            if values.stride() != keys.stride():
                raise KernelError(f"keys lie by {keys.stride()}, values by {values.stride()}")
            calls = self.kinds[kind] = self._calls(window, softcap, query.shape[1], keys)
        return calls.attend(query, keys, values, scale)

    def _calls(
        self, window: int | None, softcap: float | None, heads: int, pool: Tensor
    ) -> Call | Calls:
        if window is not None and window > self.batch.max_total:
            window = None
        if all(tile.sees_all(window) for tile in self.tiles):
            tree = None
        else:
            tree = tree_bias(self.batch, self.dtype)
        largest_first = reversed(self.tiles)  # so that the others fit the room of the first
        calls = tuple(self._call(t, tree, window, softcap, heads, pool) for t in largest_first)
        if len(calls) == 1 and calls[0].source is None:
            return calls[0]
        return Calls(calls, self.batch.padded)

    def _call(
        self,
        tile: Tile,
        tree: Tensor | None,
        window: int | None,
        softcap: float | None,
        heads: int,
        pool: Tensor,
    ) -> Call:
        skip = tile.unseen(self.batch, window)
        bias = None
        if tree is not None and not tile.sees_all(window):
            bias = tile.bias(tree, self.batch, window, skip)[:, None]
        multiplies = softcap is not None or self._multiplies(tile, heads, pool)
        entries: InPlace | Gathered
        if tile.run is None:
            units = tile.units(self.batch, skip)
            entries = Gathered.over(pool, units, self.room, shared=multiplies)
        else:
            entries = InPlace.over(
                pool, tile.run + skip, tile.keys - skip, ahead=self._asks_ahead(tile, pool)
            )
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
        shape = len(tile.pieces), tile.rows, heads, pool.shape[2]
        where = None if whole else source, target, real
        return Call(*where, entries, bias, products, softcap, *_shapes(*shape, group), group > 1)

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

    def _asks_ahead(self, tile: Tile, pool: Tensor) -> bool:
        """Tell whether keys in place are worth reading before they are used.

        Products fetch keys from cold memory in an order of their own, slowly: read beforehand in
        theirs, 4 rows over 1k take 0.83 of the time, 16 and 32 rows 0.90 and 0.95 in float32.
        Single rows gain nothing, nor do bfloat16's products; all threads must share the reading.
        """
        threads = torch.get_num_threads()
        shared = threads == 1 or tile.keys * pool[0].numel() >= threads * SHARE
        return tile.rows > 1 and self.dtype == torch.float32 and shared

    @staticmethod
    def _even(tile: Tile, pool: Tensor) -> bool:
        """Tell whether all threads have as many key/value heads to read."""
        return len(tile.pieces) * pool.shape[1] % torch.get_num_threads() == 0


def _shapes(
    requests: int, rows: int, heads: int, width: int, group: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return Call's `apart` and `asked`; a group of 1 is not packed."""
    asked = requests, heads // group, rows * group, width
    if rows == 1:
        return asked, asked
    shared = (heads,) if group == 1 else (heads // group, group)
    return (requests, rows, *shared, width), asked
