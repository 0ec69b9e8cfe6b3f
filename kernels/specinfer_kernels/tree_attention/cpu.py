"""Tree attention on a CPU: a few fused-attention calls over slices, or gathered slots, of the pool.

In small trees the G query heads that share a key/value head become G times as many rows of it, so
a key is read once for all of them; masks are made once per step and serve every layer.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch
from specinfer_kernels.tree_attention.tiles import Entries, Tile, tiles_of, tree_bias

# Rows from which packing heads into rows costs more than it saves: measured at context 1k, one
# thread, a call on packed heads takes 0.43 of the time at 2 rows, 0.97 at 16, 1.05 at 32.
PACKED_BELOW = 32
# Rows of a product that MKL has its fast kernels for: at context 1k, 3 rows take 138 us, 4 take 90.
ROWS = 4


@dataclass(frozen=True, slots=True)
class View:
    """A tile as one kind of layer sees it: B * T rows, L keys each.

    Packed, the heads that share a key/value head are rows of it: [B, K, T * G, D] for
    [B, H, T, D], filled up to a multiple of ROWS.
    """

    source: slice | Tensor  # [B * T] rows of the batch, a piece's padding included
    target: slice | Tensor  # those that are no padding
    real: Tensor | None  # where they are among the B * T; None: all, in order
    entries: Entries  # [B, L] of the pools
    bias: Tensor | None  # [B, 1, T * G, L] or [B, 1, T, L]; for one row [B, 1, 1, L]
    requests: int
    rows_each: int  # T, a shorter piece's padding included
    packed: bool

    def queries(self, query: Tensor, kv_heads: int) -> Tensor:
        """Return [B, K, T * G, D], or unpacked [B, H, T, D]."""
        _, heads, width = query.shape
        if self.source != slice(0, len(query)):
            query = query[self.source]
        if not self.packed:
            return query.view(self.requests, -1, heads, width).transpose(1, 2)
        if self.rows_each == 1:
            packed = query.view(self.requests, kv_heads, -1, width)
        else:
            rows = query.view(self.requests, -1, kv_heads, heads // kv_heads, width)
            packed = rows.transpose(1, 2).reshape(self.requests, kv_heads, -1, width)
        missing = -packed.shape[2] % ROWS
        return torch.constant_pad_nd(packed, (0, 0, 0, missing)) if missing else packed

    def rows(self, attended: Tensor, heads: int) -> Tensor:
        """Turn what queries' shape became into the tile's real rows, [<= B * T, H, D]."""
        requests, kv_heads, filled, width = attended.shape
        group = heads // kv_heads
        wanted = self.rows_each * group
        real = attended if wanted == filled else attended[:, :, :wanted]
        if self.rows_each == 1:
            return real.reshape(requests, heads, width)
        split = real.reshape(requests, kv_heads, -1, group, width)
        rows = split.transpose(1, 2).reshape(-1, heads, width)
        return rows if self.real is None else rows[self.real]


@dataclass(frozen=True, slots=True)
class CpuPlan:
    batch: TreeBatch
    dtype: torch.dtype
    tiles: tuple[Tile, ...]
    tree: Tensor  # [N, max_rows]
    # What the first layer of its kind prepares for the others: masks by (window, group), and
    # buffers for gathered keys and values, whose pages would else be mapped anew in every layer.
    views: dict[tuple[int | None, int], tuple[View, ...]] = field(default_factory=dict)
    scratch: dict[tuple[int, ...], tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: TreeBatch, dtype: torch.dtype) -> "CpuPlan":
        ends = batch.starts.tolist()
        if ends[0] != 0 or (ends[-1] != batch.rows and not batch.padded):
            raise KernelError(f"starts run from {ends[0]} to {ends[-1]}, not 0 to {batch.rows}")
        return cls(batch, dtype, tiles_of(batch), tree_bias(batch, dtype))

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
        kv_heads = keys.shape[1]
        views = self._views(window, query.shape[1] // kv_heads)
        out = torch.zeros_like(query) if self.batch.padded else torch.empty_like(query)
        for view in views:
            q = view.queries(query, kv_heads)
            k, v = (
                view.entries.of(pool, view.requests, scratch).transpose(1, 2)
                for pool, scratch in zip((keys, values), self._scratch(view, keys), strict=True)
            )
            if softcap is None:
                attended = scaled_dot_product_attention(
                    q, k, v, attn_mask=view.bias, scale=scale, enable_gqa=True
                )
            else:
                attended = _softcapped(q, k, v, view.bias, scale, softcap)
            rows = view.rows(attended, query.shape[1])
            if len(rows) == len(out) and isinstance(view.target, slice):
                return rows
            out[view.target] = rows
        return out

    def _views(self, window: int | None, group: int) -> tuple[View, ...]:
        if window is not None and window > self.batch.max_total:
            window = None
        found = self.views.get((window, group))
        if found is None:
            found = tuple(self._view(tile, window, group) for tile in self.tiles)
            self.views[window, group] = found
        return found

    def _view(self, tile: Tile, window: int | None, group: int) -> View:
        packed = tile.rows < PACKED_BELOW
        skip = tile.unseen(self.batch, window)
        bias = tile.bias(self.tree, self.batch, window)
        if bias is not None:
            bias = bias[..., skip:]
            if packed and tile.rows > 1:
                bias = bias.repeat_interleave(group, dim=1)
                bias = pad(bias, (0, 0, 0, -bias.shape[1] % ROWS))
            bias = bias[:, None]
        source, real = tile.query_rows(), tile.real_rows()
        target = source if real is None or isinstance(source, slice) else source[real]
        entries, pieces = tile.entries(self.batch, skip), len(tile.pieces)
        return View(source, target, real, entries, bias, pieces, tile.rows, packed)

    def _scratch(self, view: View, pool: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
        wanted = view.entries.scratch_shape()
        if wanted is None:
            return None, None
        shape = (*wanted, *pool.shape[1:])
        if shape not in self.scratch:
            self.scratch[shape] = pool.new_empty(shape), pool.new_empty(shape)
        return self.scratch[shape]


def _softcapped(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, softcap: float
) -> Tensor:
    """Attend with capped scores, which fused attention does not offer; at least in float32."""
    k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = torch.tanh(q.to(wide) @ k.to(wide).transpose(-1, -2) * (scale / softcap)) * softcap
    weights = (scores if bias is None else scores + bias).softmax(-1)
    return (weights @ v.to(wide)).to(q.dtype)
