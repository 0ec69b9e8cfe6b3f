"""Random token trees over shuffled pages, for tests and benchmarks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer_kernels.tree_attention.batch import WORD, TreeBatch


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
        slots = (int(batch.pages.max()) + 1) * batch.page_size
        shapes = (batch.rows, heads, width), (slots, kv_heads, width), (slots, kv_heads, width)
        drawn = (torch.randn(s, generator=generator, device=generator.device) for s in shapes)
        return cls(*(tensor.to(batch.device, dtype) for tensor in drawn))
