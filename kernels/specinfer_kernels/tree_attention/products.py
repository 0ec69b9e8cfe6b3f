"""Attention on a CPU as two products of many rows and a softmax between them.

The rows of all heads that share a key/value head meet its keys in one product, and only the keys
that some row must not see are masked.  Scores are float32 at least, as the fused operator's are:
keys in half precision are widened first, a thirtieth of the time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer_kernels.tree_attention.entries import Gathered, InPlace, Room

LARGEST = 1 << 24  # scores of a call, 64 MiB in float32
LEAST_ROWS = 48  # that read one key/value head: 16 rows of three heads
MOST_ROWS = 128  # in float32
# Scores of one key/value head: in float32 more than 32 rows of three heads over 128 keys have.
LEAST_SCORES = {torch.float32: 24_576, torch.bfloat16: 12_288}


@dataclass(frozen=True, slots=True)
class Products:
    """Prepared for B requests of H heads and R rows, that read K key/value heads of L keys."""

    entries: InPlace | Gathered
    query: Tensor  # [B * K, M, D] in the wide type, M = H / K * R
    spread: Tensor  # its view [B, H, R, D]
    widened: Tensor | None  # [B * K, L, D] in the wide type; None: keys are of it
    scores: Tensor  # [B * K, M, L] in the wide type
    weights: Tensor | None  # the same in the values' type, where the processor multiplies that
    # The scores of the last keys, [B, H, R, .], and what to add, [B, 1, R, .]; all see the others.
    masked: tuple[Tensor, Tensor] | None

    @classmethod
    def of(
        cls,
        entries: InPlace | Gathered,
        shape: tuple[int, int, int, int],
        kv_heads: int,
        keys: int,
        bias: Tensor | None,
        dtype: torch.dtype,
        room: Room,
    ) -> "Products":
        requests, heads, rows, width = shape
        wide = torch.promote_types(dtype, torch.float32)
        batch, packed = requests * kv_heads, heads // kv_heads * rows
        narrow = dtype != wide
        query = room.take("query", (batch, packed, width), wide)
        scores = room.take("scores", (batch, packed, keys), wide)
        return cls(
            entries,
            query,
            query.view(shape),
            room.take("widened", (batch, keys, width), wide) if narrow else None,
            scores,
            room.take("weights", (batch, packed, keys), dtype) if multiplies(dtype) else None,
            None if bias is None else (_last(scores.view(*shape[:3], keys), bias), bias.to(wide)),
        )

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, scale: float, softcap: float | None
    ) -> Tensor:
        """Return [B, H, R, D] for a query of that shape and pools [S, K, D]."""
        self.spread.copy_(query)
        found = self.entries.of(keys, 0).flatten(0, 1)
        if self.widened is not None:
            found = self.widened.copy_(found)
        scores = self.scores
        factor = scale if softcap is None else scale / softcap
        torch.baddbmm(scores, self.query, found.mT, beta=0, alpha=factor, out=scores)
        if softcap is not None:
            scores.tanh_().mul_(softcap)
        if self.masked is not None:
            last, bias = self.masked
            last.add_(bias)
        torch.softmax(scores, -1, out=scores)
        found = self.entries.of(values, 1).flatten(0, 1)  # only now: it may take the keys' place
        if self.weights is not None:
            scores = self.weights.copy_(scores)
        elif self.widened is not None:
            found = self.widened.copy_(found)
        return torch.bmm(scores, found).view(self.spread.shape).to(query.dtype)


def _last(scores: Tensor, bias: Tensor) -> Tensor:
    return scores[..., -bias.shape[-1] :]


def pays(dtype: torch.dtype, group: int, rows: int, keys: int, heads: int) -> bool:
    """Tell whether products beat the fused operator, by measurement (one thread, cold keys).

    With 9/3/64 heads over 1,024 keys they take 0.91 of its time at 16 rows, 0.93 at 32 and 1.0
    from 64 on in float32, 0.8 in bfloat16; in float32 1.05 where no heads share keys, and over
    128 keys.  In bfloat16 its single rows are slow where it cannot pack heads: 0.4 to 0.7.
    """
    if rows * keys * heads > LARGEST:
        return False
    packed = group * rows
    many = packed >= LEAST_ROWS and packed * keys >= LEAST_SCORES.get(dtype, 0)
    if dtype == torch.float32:
        return many and group > 1 and packed <= MOST_ROWS
    return multiplies(dtype) and (many or packed == 1)


def multiplies(dtype: torch.dtype) -> bool:
    """Tell whether this processor multiplies a type narrower than float32, in half the time."""
    return dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
