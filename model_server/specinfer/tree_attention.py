"""Tree attention (paper, sections 4.1 and 4.2): many token trees as the rows of one forward pass.

The topology-aware causal mask is a set of bits a row: which rows of its own request it descends
from.  A prompt's chunk is the tree that never branches, so prefill and decoding share a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specinfer.kv_cache import CachedSequence, KVCache
from specinfer.token_tree import TokenTree
from specinfer_kernels import AttentionPlan, TreeBatch, plan_attention


@dataclass(frozen=True, slots=True)
class Segment:
    """One sequence's rows of a forward pass, parents first.

    A parent of -1 means: directly behind what the sequence has committed.
    """

    sequence: CachedSequence
    tokens: Sequence[int]
    parents: Sequence[int]
    wanted: Sequence[int]  # rows whose logits are asked for

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """All that the model needs for one pass over N rows."""

    tokens: Tensor  # [N] int64
    positions: Tensor  # [N] int64, a row's place in its sequence: committed length + depth
    slots: Tensor  # [N] int64, where each row's keys and values go
    wanted: Tensor  # [R] int64, rows whose logits are asked for
    attention: AttentionPlan
    cache: KVCache


def chain(sequence: CachedSequence, tokens: Sequence[int], *, wanted: bool) -> Segment:
    """Return a chunk without branches; if wanted, its last row's logits are asked for."""
    size = len(tokens)
    return Segment(sequence, tokens, range(-1, size - 1), [size - 1] if wanted else [])


def chain_and_tree(sequence: CachedSequence, pending: Sequence[int], tree: TokenTree) -> Segment:
    """Return the tokens not cached yet, the last being the tree's root, and the tree below.

    The logits of all the tree's nodes are asked for, the root's first.
    """
    shift = len(pending) - 1
    tokens = [*pending, *tree.tokens[1:]]
    parents = [*range(-1, shift), *(parent + shift for parent in tree.parents[1:])]
    return Segment(sequence, tokens, parents, range(shift, len(tokens)))


def plan(cache: KVCache, segments: Sequence[Segment]) -> ForwardPlan:
    """Lay the segments out as one pass.  Their rows' places must be reserved in the cache."""
    device = cache.kv.device
    starts = np.cumsum([0, *(len(segment) for segment in segments)])
    slots: list[int] = []
    positions: list[int] = []
    wanted: list[int] = []
    for start, segment in zip(starts.tolist(), segments, strict=False):
        end = segment.sequence.length
        slots += cache.slots(segment.sequence, end, len(segment))
        positions += [end + depth for depth in _depths(segment.parents)]
        wanted += [start + row for row in segment.wanted]
    batch = TreeBatch(
        starts=torch.tensor(starts, dtype=torch.int32, device=device),
        contexts=_int32([segment.sequence.length for segment in segments], device),
        pages=_page_table(segments, device),
        page_size=cache.page_size,
        ancestors=torch.from_numpy(_ancestors(segments, int(starts[-1]))).to(device),
        positions=_int32(positions, device),
        max_rows=max(len(segment) for segment in segments),
        max_total=max(segment.sequence.length + len(segment) for segment in segments),
    )
    return ForwardPlan(
        tokens=torch.tensor(
            [token for segment in segments for token in segment.tokens], device=device
        ),
        positions=torch.tensor(positions, device=device),
        slots=torch.tensor(slots, device=device),
        wanted=torch.tensor(wanted, dtype=torch.int64, device=device),
        attention=plan_attention(batch, dtype=cache.kv.dtype),
        cache=cache,
    )


def _int32(values: list[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def _depths(parents: Sequence[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def _page_table(segments: Sequence[Segment], device: torch.device) -> Tensor:
    """Return the pages of each sequence, [B, P], short ones padded with page 0."""
    longest = max(len(segment.sequence.pages) for segment in segments)
    rows = [
        segment.sequence.pages + [0] * (longest - len(segment.sequence.pages))
        for segment in segments
    ]
    return torch.tensor(rows, dtype=torch.int32, device=device)


def _ancestors(segments: Sequence[Segment], rows: int) -> NDArray[np.int64]:
    """Return the bits of each row, [N, W]: bit j is set when it descends from, or is, row j."""
    words = -(-max(len(segment) for segment in segments) // 64)
    bits = np.zeros((rows, words * 64), dtype=bool)
    start = 0
    for segment in segments:
        size = len(segment)
        own = bits[start : start + size]
        for row, parent in enumerate(segment.parents):
            if parent >= 0:
                own[row, :size] = own[parent, :size]
            own[row, row] = True
        start += size
    return np.packbits(bits, axis=1, bitorder="little").view(np.int64)
