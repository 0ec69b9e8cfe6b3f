"""The definition of tree attention: one request, one dense mask, one softmax at a time.

Slow and plain on purpose.  `attend` computes in float64, so it is the oracle; in the dtype of
its input the same formula gives the error that other implementations are measured against.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer_kernels.tree_attention.batch import WORD, TreeBatch
from specinfer_kernels.tree_attention.plan import check


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    batch: TreeBatch
    dtype: torch.dtype

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
        check(self, query, keys, values, softcap, window)
        out = define(
            self.batch,
            query.double(),
            keys.double(),
            values.double(),
            scale=scale,
            softcap=softcap,
            window=window,
        )
        return out.to(query.dtype)


def define(
    batch: TreeBatch,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    softcap: float | None,
    window: int | None,
) -> Tensor:
    """Return [N, H, D], every operation rounded to the dtype of the arguments."""
    out = torch.zeros_like(query)
    group = query.shape[1] // keys.shape[1]
    for request in range(batch.requests):
        first, end = batch.starts[request : request + 2].tolist()
        slots, hidden = _view(batch, request, window)
        k = keys[slots].repeat_interleave(group, dim=1)
        v = values[slots].repeat_interleave(group, dim=1)
        scores = torch.einsum("thd,shd->hts", query[first:end], k) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        out[first:end] = torch.einsum("hts,shd->thd", weights, v)
    return out


def _view(batch: TreeBatch, request: int, window: int | None) -> tuple[Tensor, Tensor]:
    """Return a request's cache slots, [context + T], and what its rows must not see, [T, same]."""
    first, end = batch.starts[request : request + 2].tolist()
    context = int(batch.contexts[request])
    logical = torch.arange(context + end - first, device=batch.device)
    page = batch.pages[request].long()[logical // batch.page_size]
    slots = page * batch.page_size + logical % batch.page_size
    row = torch.arange(end - first, device=batch.device)
    seen = (batch.ancestors[first:end, row // WORD] >> (row % WORD)) & 1 == 1
    hidden = torch.cat([seen.new_zeros(end - first, context), ~seen], dim=1)
    if window is not None:
        rows_at = batch.positions[first:end]
        keys_at = torch.cat([logical[:context], rows_at])
        hidden |= rows_at[:, None] - keys_at[None, :] >= window
    return slots, hidden
