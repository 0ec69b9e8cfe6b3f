"""Invariant attention on a CPU: a row's bits depend on what it sees, not on its company."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from specinfer_kernels import KernelError, TreeBatch, plan_attention, tree_attention
from specinfer_kernels.testing import Tensors, batch_of, chain, depths, padded, random_tree

HEADS = {"GQA 3": (9, 3, 64), "MHA": (2, 2, 16), "GQA 4": (8, 2, 80)}
# contexts, rows: within a cut of 32 keys, over one, over several; a chunk; plain rows
BATCHES = {
    "trees": ([40, 70, 1000], [9, 20, 32]),
    "over a cut": ([31, 60], [12, 40]),
    "a chunk beside rows": ([10, 64, 511], [200, 1, 1]),
    "no context": ([0, 0], [1, 70]),
}


def make(
    contexts: Sequence[int], trees: Sequence[Sequence[int]], generator: torch.Generator
) -> TreeBatch:
    """Return a batch whose pages lie in random order."""
    per_request = max(-(-(c + len(t)) // 16) for c, t in zip(contexts, trees, strict=True))
    pages = torch.randperm(len(trees) * per_request, generator=generator).view(len(trees), -1)
    return batch_of(contexts, trees, pages=pages)


def attend(batch: TreeBatch, tensors: Tensors, window: int | None = None) -> Tensor:
    plan = plan_attention(batch, dtype=tensors.query.dtype, backend="cpu", invariant=True)
    parts = tensors.query, tensors.keys, tensors.values
    return tree_attention(*parts, plan, scale=0.125, window=window)


def alone(batch: TreeBatch, tensors: Tensors, row: int) -> tuple[TreeBatch, Tensors]:
    """Return a row as plain decoding has it: its ancestors committed, pages in order."""
    request = int((batch.starts[1:] <= row).sum())
    context, first = int(batch.contexts[request]), int(batch.starts[request])
    bits = batch.ancestors[row]
    own = [j for j in range(row - first + 1) if int(bits[j // 64]) >> j % 64 & 1]
    logical = torch.tensor([*range(context), *(context + j for j in own)])
    slots = batch.pages[request].long()[logical // 16] * 16 + logical % 16
    single = batch_of([len(slots) - 1], [[-1]])
    room = single.pages.numel() * 16 - len(slots)
    pools = (
        torch.cat([pool[slots], torch.full((room, *pool.shape[1:]), torch.nan).to(pool.dtype)])
        for pool in (tensors.keys, tensors.values)
    )
    return single, Tensors(tensors.query[row : row + 1], *pools)


@pytest.mark.parametrize("window", [None, 7, 50])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("case", BATCHES)
def test_a_row_of_a_tree_has_the_bits_of_plain_decoding(
    case: str, heads: str, window: int | None, generator: torch.Generator
) -> None:
    contexts, rows = BATCHES[case]
    trees = [chain(r) if r == 200 else random_tree(r, generator) for r in rows]
    batch = make(contexts, trees, generator)
    tensors = Tensors.random(batch, *HEADS[heads], torch.float32, generator)
    together = attend(batch, tensors, window)
    for row in range(0, batch.rows, 3):
        assert torch.equal(attend(*alone(batch, tensors, row), window)[0], together[row]), row


def test_a_chain_crosses_cuts_like_the_tokens_it_stands_for(generator: torch.Generator) -> None:
    batch = make([20], [chain(100)], generator)
    tensors = Tensors.random(batch, 4, 2, 32, torch.float32, generator)
    together = attend(batch, tensors)
    assert max(depths(chain(100))) > 64
    for row in range(100):
        assert torch.equal(attend(*alone(batch, tensors, row))[0], together[row])


def test_padding_changes_no_bit(generator: torch.Generator) -> None:
    batch = make([40, 9], [random_tree(5, generator), [-1]], generator)
    tensors = Tensors.random(batch, 4, 2, 32, torch.float32, generator)
    query = torch.cat([tensors.query, torch.full((5, 4, 32), torch.nan)])
    wider = padded(batch, rows=11, requests=4, longest=8, pages=16)
    got = attend(wider, Tensors(query, tensors.keys, tensors.values))
    assert torch.equal(got[:6], attend(batch, tensors))
    assert got[6:].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", [None, 7, 50])
@pytest.mark.parametrize("case", BATCHES)
def test_rows_stay_within_twice_the_plain_error(
    case: str,
    window: int | None,
    dtype: torch.dtype,
    generator: torch.Generator,
    within_budget: Callable[..., None],
) -> None:
    contexts, rows = BATCHES[case]
    batch = make(contexts, [random_tree(r, generator) for r in rows], generator)
    plan = plan_attention(batch, dtype=dtype, backend="cpu", invariant=True)
    tensors = Tensors.random(batch, 6, 2, 32, dtype, generator)
    within_budget(plan, tensors, window=window)


def test_what_cannot_be_promised_is_refused(generator: torch.Generator) -> None:
    batch = batch_of([9], [chain(2)])
    with pytest.raises(KernelError, match="backend 'reference' cannot make rows invariant"):
        plan_attention(batch, dtype=torch.float32, backend="reference", invariant=True)
    tensors = Tensors.random(batch, 2, 2, 16, torch.float32, generator)
    plan = plan_attention(batch, dtype=torch.float32, backend="cpu", invariant=True)
    parts = tensors.query, tensors.keys, tensors.values
    with pytest.raises(KernelError, match="does not cap scores"):
        tree_attention(*parts, plan, scale=1.0, softcap=2.0)
