"""Tree attention on a CPU whose every row comes out bit for bit the same in any company.

A row's keys, in the order of its path, are cut at every 32nd.  What lies before the last cut is
one fused-attention call for all rows that share it, what lies behind it is gathered for each row,
and the two are merged by their log-sum-exps.  So a row goes through the same operations whether
its ancestors are committed or drafted, wherever its entries lie, and whoever else is in the batch.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch

CUT = 32  # keys: more are more to gather, fewer are more paths that cross a cut
# Rows from which MKL's products give a row the same bits, however many more there are; for fewer
# it has other kernels, which are slower, too.
ROWS = 4


@dataclass(frozen=True, slots=True)
class Shared:
    """Rows whose keys before their last cut are the same."""

    rows: slice | Tensor
    slots: slice | Tensor
    bias: Tensor | None  # [R, L], where a window hides some


@dataclass(frozen=True, slots=True)
class Layout:
    """A step as layers with one window see it."""

    shared: tuple[Shared, ...]
    tails: Tensor  # [N * CUT] slots behind the last cut, padded with the row's own
    tail_bias: Tensor  # [N, 1, 1, CUT]


@dataclass(frozen=True, slots=True)
class InvariantPlan:
    batch: TreeBatch
    dtype: torch.dtype
    paths: tuple[NDArray[np.int64], ...]  # of each row: the slots of all keys it sees, in order
    layouts: dict[int | None, Layout] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: TreeBatch, dtype: torch.dtype) -> "InvariantPlan":
        return cls(batch, dtype, tuple(_paths(batch)))

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
        if softcap is not None:
            raise KernelError("invariant attention does not cap scores")
        if window not in self.layouts:
            self.layouts[window] = _layout(self.paths, window, self.dtype)
        layout, real = self.layouts[window], len(self.paths)
        rows, (_, heads, width) = query[:real], query.shape
        grouped = rows.view(real, keys.shape[1], -1, width)  # [N, K, G, D]
        out, weight = _tails(layout, grouped, keys, values, scale)
        before, before_weight = torch.zeros_like(out), torch.full_like(weight, -torch.inf)
        for shared in layout.shared:
            found = _before(shared, grouped, keys, values, scale)
            before[shared.rows], before_weight[shared.rows] = found
        merged = _merge(before, before_weight, out, weight).view(real, heads, width)
        return pad(merged, (0, 0, 0, 0, 0, len(query) - real)) if len(query) > real else merged


def _tails(
    layout: Layout, grouped: Tensor, keys: Tensor, values: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attend each row to its keys behind the last cut: [N, K, G, D] and weights [N, K, G]."""
    rows, kv_heads, group, width = grouped.shape
    k, v = (
        pool.index_select(0, layout.tails).view(rows, CUT, kv_heads, width).transpose(1, 2)
        for pool in (keys, values)
    )
    query = _filled_up(grouped)
    bias = layout.tail_bias.expand(-1, kv_heads, query.shape[2], -1)
    out, weight = _flash(query, k, v, bias, scale)
    return out[:, :, :group], weight[:, :, :group]


def _before(
    shared: Shared, grouped: Tensor, keys: Tensor, values: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attend rows to the keys before their last cut: [R, K, G, D] and weights [R, K, G]."""
    own = grouped[shared.rows]
    rows, kv_heads, group, width = own.shape
    query = _filled_up(own.transpose(0, 1).reshape(1, kv_heads, rows * group, width))
    k, v = (pool[shared.slots].transpose(0, 1)[None] for pool in (keys, values))
    bias = shared.bias
    if bias is not None:
        bias = bias.repeat_interleave(group, dim=0)
        bias = pad(bias, (0, 0, 0, query.shape[2] - rows * group))
        bias = bias.expand(1, kv_heads, -1, -1)
    out, weight = _flash(query, k, v, bias, scale)
    out, weight = out[0, :, : rows * group], weight[0, :, : rows * group]
    return (
        out.reshape(kv_heads, rows, group, width).transpose(0, 1),
        weight.reshape(kv_heads, rows, group).transpose(0, 1),
    )


def _flash(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Return attended rows and the log-sum-exps of their scores, as the fused operator does."""
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, weight = attend(query, keys, values, 0.0, False, attn_mask=bias, scale=scale)
    return out, weight


def _filled_up(query: Tensor) -> Tensor:
    """Return [.., rows, D] with noughts behind, so that rows are a multiple of ROWS."""
    missing = -query.shape[-2] % ROWS
    return pad(query, (0, 0, 0, missing)) if missing else query


def _merge(a: Tensor, a_weight: Tensor, b: Tensor, b_weight: Tensor) -> Tensor:
    """Weigh two partial results; only operations that round alike wherever an entry lies."""
    top = torch.maximum(a_weight, b_weight)
    a_share, b_share = (a_weight - top).exp()[..., None], (b_weight - top).exp()[..., None]
    return ((a * a_share + b * b_share) / (a_share + b_share)).to(a.dtype)


def _paths(batch: TreeBatch) -> Iterable[NDArray[np.int64]]:
    words = batch.ancestors.numpy()
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").astype(bool)
    starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
    offset = np.arange(batch.page_size)
    for request, context in enumerate(contexts):
        first, end = starts[request], starts[request + 1]
        pages = batch.pages[request].numpy().astype(np.int64)
        slots = (pages[:, None] * batch.page_size + offset).ravel()
        own = slots[context : context + end - first]
        for row in bits[first:end, : end - first]:
            yield np.concatenate([slots[:context], own[row]])


def _layout(paths: tuple[NDArray[np.int64], ...], window: int | None, dtype: torch.dtype) -> Layout:
    tails = np.zeros((len(paths), CUT), np.int64)
    seen = np.zeros((len(paths), CUT), bool)
    sharing: dict[tuple[int, bool, bytes], list[int]] = defaultdict(list)
    for row, path in enumerate(paths):
        oldest = 0 if window is None else max(0, len(path) - window)
        cut = (len(path) - 1) // CUT * CUT
        tail = path[cut:]
        tails[row, : len(tail)], tails[row, len(tail) :] = tail, tail[-1]
        seen[row, max(0, oldest - cut) : len(tail)] = True
        begin = oldest // CUT * CUT
        if begin < cut:
            sharing[begin, oldest > 0, path[begin:cut].tobytes()].append(row)
    bias = torch.zeros(len(paths), 1, 1, CUT, dtype=dtype)
    bias.masked_fill_(torch.from_numpy(~seen)[:, None, None], -torch.inf)
    shared = (_shared(paths, rows, begin, window, dtype) for (begin, _, _), rows in sharing.items())
    return Layout(tuple(shared), torch.from_numpy(tails).flatten(), bias)


def _shared(
    paths: tuple[NDArray[np.int64], ...],
    rows: list[int],
    begin: int,
    window: int | None,
    dtype: torch.dtype,
) -> Shared:
    lengths = torch.tensor([len(paths[row]) for row in rows])
    cut = (len(paths[rows[0]]) - 1) // CUT * CUT
    bias = None
    if window is not None and len(paths[rows[0]]) > window:
        hidden = torch.arange(begin, cut) < lengths[:, None] - window
        bias = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
    return Shared(_run(np.array(rows)), _run(paths[rows[0]][begin:cut]), bias)


def _run(indices: NDArray[np.int64]) -> slice | Tensor:
    """Return indices as a slice where they follow each other."""
    first = int(indices[0])
    if (np.diff(indices) == 1).all():
        return slice(first, first + len(indices))
    return torch.from_numpy(indices)
