"""Random token trees, inputs and the error budget, for tests and benchmarks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer_kernels.tree_attention.batch import WORD, TreeBatch
from specinfer_kernels.tree_attention.reference import define


def ancestor_words(parents: Sequence[int], words: int) -> list[list[int]]:
    """Return one tree's [T, words] ancestor bits; parents[j] < j, and -1 marks the root."""
    seen: list[int] = []
    for row, parent in enumerate(parents):
        seen.append(1 << row | (seen[parent] if parent >= 0 else 0))
    return [[_signed(bits >> WORD * word) for word in range(words)] for bits in seen]


def _signed(bits: int) -> int:
    low = bits & (1 << WORD) - 1
    return low - (1 << WORD) if low >> WORD - 1 else low


def chain(rows: int) -> list[int]:
    """Return the parents of a tree without branches: plain causal attention."""
    return list(range(-1, rows - 1))


def random_tree(rows: int, generator: torch.Generator) -> list[int]:
    """Return parents of a random tree."""
    return [-1] + [int(torch.randint(row, (1,), generator=generator)) for row in range(1, rows)]


def batch_of(
    contexts: Sequence[int],
    trees: Sequence[Sequence[int]],
    *,
    page_size: int = 16,
    pages: Tensor | None = None,
    device: str = "cpu",
) -> TreeBatch:
    """Return the batch of these contexts and trees (given as parents).

    pages are the block tables, [B, P]; left out, request b takes the b-th run of pages.
    """
    rows = [len(tree) for tree in trees]
    totals = [context + count for context, count in zip(contexts, rows, strict=True)]
    words = -(-max(rows) // WORD)
    if pages is None:
        per_request = -(-max(totals) // page_size)
        pages = torch.arange(len(trees) * per_request).view(len(trees), per_request)
    return TreeBatch(
        starts=torch.tensor([0, *rows]).cumsum(0).to(device, torch.int32),
        contexts=torch.tensor(contexts, dtype=torch.int32, device=device),
        pages=pages.to(device, torch.int32),
        page_size=page_size,
        ancestors=torch.tensor(
            [row for tree in trees for row in ancestor_words(tree, words)], device=device
        ),
        positions=torch.tensor(
            [
                context + depth
                for context, tree in zip(contexts, trees, strict=True)
                for depth in depths(tree)
            ],
            dtype=torch.int32,
            device=device,
        ),
        max_rows=max(rows),
        max_total=max(totals),
    )


def padded(batch: TreeBatch, *, rows: int, requests: int, longest: int, pages: int) -> TreeBatch:
    """Return the same batch in a larger frame, as a captured graph has it."""
    last = batch.starts[-1].expand(requests - batch.requests)
    words = -(-longest // WORD)
    return TreeBatch(
        starts=torch.cat([batch.starts, last]),
        contexts=_grown(batch.contexts, requests),
        pages=_grown(_grown(batch.pages.T, pages).T, requests).contiguous(),
        page_size=batch.page_size,
        ancestors=_grown(_grown(batch.ancestors.T, words).T, rows).contiguous(),
        positions=_grown(batch.positions, rows),
        max_rows=longest,
        max_total=pages * batch.page_size,
        padded=True,
    )


def _grown(tensor: Tensor, size: int) -> Tensor:
    """Return the tensor with noughts behind it, so that its first dimension has the size."""
    more = tensor.new_zeros(size - len(tensor), *tensor.shape[1:])
    return torch.cat([tensor, more])


def depths(parents: Sequence[int]) -> list[int]:
    """Return every row's distance from the root."""
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


@dataclass(frozen=True, slots=True)
class Tensors:
    """Inputs of one layer: query [N, H, D], pools [S, K, D]."""

    query: Tensor
    keys: Tensor
    values: Tensor

    @classmethod
    def random(
        cls,
        batch: TreeBatch,
        heads: int,
        kv_heads: int,
        width: int,
        dtype: torch.dtype,
        generator: torch.Generator,
    ) -> "Tensors":
        """Draw normal entries for every slot that the batch's pages reach."""
        shapes = _shapes(batch, heads, kv_heads, width)
        drawn = (torch.randn(s, generator=generator, device=generator.device) for s in shapes)
        return cls(*(tensor.to(batch.device, dtype) for tensor in drawn))

    @classmethod
    def zeros(
        cls, batch: TreeBatch, heads: int, kv_heads: int, width: int, dtype: torch.dtype
    ) -> "Tensors":
        """Return entries for whoever only wants their shapes."""
        shapes = _shapes(batch, heads, kv_heads, width)
        return cls(*(torch.zeros(s, dtype=dtype, device=batch.device) for s in shapes))


def _shapes(batch: TreeBatch, heads: int, kv_heads: int, width: int) -> list[tuple[int, int, int]]:
    slots = (int(batch.pages.max()) + 1) * batch.page_size
    return [(batch.rows, heads, width), (slots, kv_heads, width), (slots, kv_heads, width)]


def error_and_budget(
    batch: TreeBatch,
    tensors: Tensors,
    got: Tensor,
    *,
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
) -> tuple[float, float]:
    """Return the largest error of got, and twice that of the plain formula in the same dtype.

    Both are against float64.  The budget has eight roundings of a wide type beside it, since one
    row's plain error may happen to be nought.
    """
    parts = tensors.query, tensors.keys, tensors.values
    plain, exact = (
        define(
            batch, *(part.to(dtype) for part in parts), scale=scale, softcap=softcap, window=window
        )
        for dtype in (tensors.query.dtype, torch.float64)
    )
    wide = torch.finfo(torch.promote_types(tensors.query.dtype, torch.float32))
    rounding = 8 * wide.eps * float(exact.abs().max())
    return _distance(got, exact), 2 * _distance(plain, exact) + rounding


def _distance(got: Tensor, exact: Tensor) -> float:
    return float((got.double() - exact).abs().max())
