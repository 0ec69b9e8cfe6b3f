"""The GPU kernels, run by Triton's interpreter on a CPU, against the definition.

Not collected by itself: test_triton_interpreted.py runs it in a process of its own.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specinfer_kernels import KernelError, TreeBatch, commit_kv, plan_attention, tree_attention
from specinfer_kernels.testing import Tensors, batch_of, chain, padded, random_tree
from specinfer_kernels.tree_attention.triton import TritonPlan

# name: contexts, rows of each tree, (heads, kv_heads, width), multiprocessors, dtype
CASES = {
    "one decode row": ([37], [1], (4, 2, 64), 1, torch.float32),
    "empty context": ([0], [9], (6, 2, 64), 1, torch.bfloat16),
    "ragged, width 80": ([0, 37, 20], [20, 1, 13], (2, 1, 80), 1, torch.float16),
    "width 96": ([20, 5], [3, 4], (2, 2, 96), 1, torch.bfloat16),
    "width 128, GQA 4": ([40], [8], (4, 1, 128), 1, torch.bfloat16),
    "width 256": ([20], [3], (2, 1, 256), 1, torch.float16),
    "a full word": ([10], [64], (2, 1, 64), 1, torch.float16),
    "one bit more": ([10], [65], (1, 1, 64), 1, torch.bfloat16),
    "four words": ([3], [200], (1, 1, 64), 1, torch.float16),
    "split": ([700, 40], [5, 1], (2, 1, 64), 8, torch.bfloat16),
    "split, float32": ([520, 0], [9, 2], (2, 1, 64), 8, torch.float32),
}


def make(contexts: list[int], rows: list[int], generator: torch.Generator) -> TreeBatch:
    """Return random trees on pages of 16 slots in random order."""
    per_request = max(-(-(c + r) // 16) for c, r in zip(contexts, rows, strict=True))
    pages = torch.randperm(len(rows) * per_request, generator=generator).view(len(rows), -1)
    return batch_of(contexts, [random_tree(r, generator) for r in rows], pages=pages)


@pytest.mark.parametrize("case", CASES)
def test_rows_stay_within_twice_the_plain_error(
    case: str, generator: torch.Generator, within_budget: Callable[..., None]
) -> None:
    contexts, rows, heads, multiprocessors, dtype = CASES[case]
    batch = make(contexts, rows, generator)
    tensors = Tensors.random(batch, *heads, dtype, generator)
    within_budget(TritonPlan(batch, dtype, multiprocessors), tensors)


@pytest.mark.parametrize(
    "rules",
    [
        {"softcap": 2.0},
        {"softcap": 50.0},
        {"window": 5},
        {"window": 300},
        {"softcap": 5.0, "window": 1},
    ],
)
def test_scores_are_capped_and_windows_slide(
    rules: dict[str, float], generator: torch.Generator, within_budget: Callable[..., None]
) -> None:
    batch = make([530, 0], [7, 12], generator)
    tensors = Tensors.random(batch, 2, 1, 64, torch.float32, generator)
    within_budget(TritonPlan(batch, torch.float32, multiprocessors=8), tensors, **rules)


def attend(batch: TreeBatch, tensors: Tensors) -> Tensor:
    plan = plan_attention(batch, dtype=tensors.query.dtype, backend="triton")
    return tree_attention(tensors.query, tensors.keys, tensors.values, plan, scale=0.125)


def test_another_branch_changes_no_other_row(generator: torch.Generator) -> None:
    tree = [-1, 0, 0, 1, 1, 2, 3]
    wider = batch_of([9], [[*tree, 2]])  # eight rows: the same tile shape
    tensors = Tensors.random(wider, 2, 1, 64, torch.float32, generator)
    narrow = Tensors(tensors.query[:7], tensors.keys, tensors.values)
    assert torch.equal(attend(wider, tensors)[:7], attend(batch_of([9], [tree]), narrow))


@pytest.mark.parametrize("contexts", [[9, 30], [700, 40]], ids=["whole", "split"])
def test_padding_changes_nothing_and_comes_out_as_nought(
    contexts: list[int], generator: torch.Generator
) -> None:
    batch = make(contexts, [5, 3], generator)
    tensors = Tensors.random(batch, 2, 1, 64, torch.float32, generator)
    wider = padded(batch, rows=11, requests=4, longest=8, pages=64)
    query = torch.cat([tensors.query, torch.full((3, 2, 64), torch.nan)])
    loose = Tensors(query, tensors.keys, tensors.values)
    got = tree_attention(
        *(loose.query, loose.keys, loose.values), TritonPlan(wider, torch.float32, 8), scale=0.125
    )
    assert got[8:].eq(0).all()
    torch.testing.assert_close(got[:8], attend(batch, tensors))


@pytest.mark.parametrize(
    ("source", "target"),
    [([5, 7, 9], [4, 5, 6]), ([], []), ([1, 2, 3], [2, 3, 1]), ([*range(1, 40)], [*range(39)])],
)
def test_committed_entries_arrive_as_if_all_were_read_first(
    source: list[int], target: list[int]
) -> None:
    kv = torch.randn(2, 2, 40, 2, 72)  # two programs a plane
    expected = kv.clone()
    expected[:, :, target] = kv[:, :, source]
    slots = (torch.tensor(part, dtype=torch.int64) for part in (source, target))
    commit_kv(kv, *slots, backend="triton")
    assert torch.equal(kv, expected)


def test_what_the_kernels_cannot_serve_is_named(generator: torch.Generator) -> None:
    batch = batch_of([9], [chain(2)])
    tensors = Tensors.random(batch, 2, 2, 64, torch.float64, generator)
    with pytest.raises(KernelError, match="half precision or float32, not torch.float64"):
        attend(batch, tensors)
    halves = Tensors.random(batch, 2, 2, 64, torch.float16, generator)
    strided = Tensors(
        halves.query, halves.keys.transpose(0, 1).contiguous().transpose(0, 1), halves.values
    )
    with pytest.raises(KernelError, match="contiguous pools"):
        attend(batch, strided)
    with pytest.raises(KernelError, match="page_size is 12"):
        plan_attention(
            batch_of([9], [chain(2)], page_size=12), dtype=torch.float16, backend="triton"
        )
    slots = torch.arange(1025)
    with pytest.raises(KernelError, match="1025 entries to move at once; the limit is 1024"):
        commit_kv(torch.zeros(1, 2, 1025, 1, 16), slots, slots, backend="triton")
