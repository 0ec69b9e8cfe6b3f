"""Tree attention (paper, sections 4.1 and 4.2): many token trees as the rows of one forward pass.

The topology-aware causal mask is a set of bits a row: which rows of its own request it descends
from.  A prompt's chunk is the tree that never branches, so prefill and decoding share a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specinfer.kv_cache import CachedSequence, KVCache
from specinfer.token_tree import TokenTree


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
    """One pass over N rows of B segments, laid out on the host."""

    tokens: Sequence[int]  # [N]
    positions: Sequence[int]  # [N], a row's place in its sequence: committed length + depth
    slots: Sequence[int]  # [N], where each row's keys and values go
    wanted: Sequence[int]  # [R], rows whose logits are asked for
    starts: Sequence[int]  # [B+1]: segment b owns rows starts[b] .. starts[b+1]-1
    contexts: Sequence[int]  # [B], what each sequence has committed
    pages: Sequence[Sequence[int]]  # of each sequence
    ancestors: NDArray[np.int64]  # [N, W]
    cache: KVCache

    @property
    def longest(self) -> int:
        """Rows of the longest segment."""
        return max(end - start for start, end in pairwise(self.starts))

    @property
    def span(self) -> int:
        """Tokens of the longest sequence, its new rows included."""
        sizes = (end - start for start, end in pairwise(self.starts))
        return max(context + size for context, size in zip(self.contexts, sizes, strict=True))


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
    tokens: list[int] = []
    slots: list[int] = []
    positions: list[int] = []
    wanted: list[int] = []
    starts, contexts = [0], []
    for segment in segments:
        start, end = len(tokens), segment.sequence.length
        tokens += segment.tokens
        slots += cache.slots(segment.sequence, end, len(segment.tokens))
        positions += [end + depth for depth in _depths(segment.parents)]
        wanted += [start + row for row in segment.wanted]
        starts.append(len(tokens))
        contexts.append(end)
    return ForwardPlan(
        tokens=tokens,
        positions=positions,
        slots=slots,
        wanted=wanted,
        starts=starts,
        contexts=contexts,
        pages=[segment.sequence.pages for segment in segments],
        ancestors=_ancestors(segments),
        cache=cache,
    )


def _depths(parents: Sequence[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def _ancestors(segments: Sequence[Segment]) -> NDArray[np.int64]:
    """Return the bits of each row, [N, W]: bit j is set when it descends from, or is, row j."""
    words = -(-max(map(len, segments)) // 64)
    packed: list[bytes] = []
    for segment in segments:
        bits: list[int] = []
        for row, parent in enumerate(segment.parents):
            bits.append((bits[parent] if parent >= 0 else 0) | 1 << row)
        packed += [own.to_bytes(8 * words, "little") for own in bits]
    return np.frombuffer(b"".join(packed), dtype="<i8").reshape(-1, words)
