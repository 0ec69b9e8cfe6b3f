"""Attention by two products, on a CPU: the same as the definition wherever it may be chosen."""

from collections.abc import Callable

import pytest
import torch

from specinfer_kernels import TreeBatch, plan_attention, tree_attention
from specinfer_kernels.testing import Tensors, batch_of, chain, random_tree
from specinfer_kernels.tree_attention import cpu, products
from specinfer_kernels.tree_attention.products import pays

BATCHES = {
    "one decode row": ([37], [1]),
    "no context": ([0], [9]),
    "decode rows": ([90, 90, 90], [1, 1, 1]),
    "ragged": ([0, 37, 101, 12], [20, 1, 13, 65]),
    "four words": ([10], [200]),
    "chunk beside trees": ([0, 40, 41], [150, 8, 8]),
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(params=["scattered", "in order"])
def pages(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(
    case: str, pages: str, generator: torch.Generator, dtype: torch.dtype
) -> tuple[TreeBatch, Tensors]:
    contexts, rows = BATCHES[case]
    per_request = max(-(-(c + r) // 16) for c, r in zip(contexts, rows, strict=True))
    order = torch.randperm(len(rows) * per_request, generator=generator).view(len(rows), -1)
    trees = [random_tree(count, generator) for count in rows]
    batch = batch_of(contexts, trees, pages=order if pages == "scattered" else None)
    return batch, Tensors.random(batch, 6, 2, 64, dtype, generator)


def by_head(given: Tensors) -> Tensors:
    pools = (
        pool.transpose(0, 1).contiguous().transpose(0, 1) for pool in (given.keys, given.values)
    )
    return Tensors(given.query, *pools)


@pytest.mark.parametrize("narrow", [True, False], ids=["native", "widened"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", BATCHES)
def test_products_stay_within_twice_the_plain_error(
    case: str,
    dtype: torch.dtype,
    narrow: bool,
    pages: str,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
    within_budget: Callable[..., None],
) -> None:
    """Forced for every shape, and where the processor has no products of a narrow type."""
    monkeypatch.setattr(cpu, "pays", lambda *_: True)
    if not narrow:
        monkeypatch.setattr(products, "multiplies", lambda _: False)
    batch, given = make(case, pages, generator, dtype)
    plan = plan_attention(batch, dtype=dtype, backend="cpu")
    within_budget(plan, by_head(given))
    within_budget(plan, by_head(given), window=6)
    within_budget(plan, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tree_of_32_over_1024_keys_takes_them(
    dtype: torch.dtype, generator: torch.Generator, within_budget: Callable[..., None]
) -> None:
    batch = batch_of([1024], [random_tree(32, generator)])
    given = by_head(Tensors.random(batch, 9, 3, 64, dtype, generator))
    plan = cpu.CpuPlan.of(batch, dtype)
    within_budget(plan, given)
    chosen = pays(dtype, 3, 32, 1056, 9) and 3 % torch.get_num_threads() == 0
    (call,) = plan.kinds.values()
    assert isinstance(call, cpu.Call) and (call.products is not None) == chosen


def test_what_others_hold_is_never_read(
    pages: str, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "pays", lambda *_: True)
    batch, given = make("chunk beside trees", pages, generator, torch.float32)
    given = by_head(given)

    def attend() -> torch.Tensor:
        plan = plan_attention(batch, dtype=torch.float32, backend="cpu")
        return tree_attention(given.query, given.keys, given.values, plan, scale=0.125)

    clean = attend()
    own = torch.zeros(len(given.keys), dtype=torch.bool)
    for request, total in enumerate((150, 48, 49)):
        logical = torch.arange(total)
        own[batch.pages[request].long()[logical // 16] * 16 + logical % 16] = True
    for pool in (given.keys, given.values):
        pool[~own] = torch.nan
    assert torch.equal(attend(), clean)


def test_they_are_chosen_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "multiplies", lambda dtype: dtype == torch.bfloat16)
    single, half = torch.float32, torch.bfloat16
    assert pays(single, 3, 32, 1056, 9) and pays(half, 3, 32, 1056, 9)
    assert not pays(single, 1, 64, 1056, 12) and pays(half, 1, 64, 1056, 12)
    assert not pays(single, 3, 1, 1056, 9) and not pays(half, 3, 8, 1056, 9)
    assert pays(half, 1, 1, 1056, 12)  # a plain row, whose heads share nothing
    assert not pays(half, 4, 128, 40_000, 32)  # scores of 655 MB
    assert not pays(torch.float16, 3, 32, 1056, 9) and not pays(torch.float64, 3, 32, 1056, 9)


def test_one_plan_takes_layers_with_and_without_a_cap(generator: torch.Generator) -> None:
    batch = batch_of([20], [chain(5)])
    plan = plan_attention(batch, dtype=torch.float64, backend="cpu")
    given = Tensors.random(batch, 4, 2, 16, torch.float64, generator)
    parts = given.query, given.keys, given.values
    definition = plan_attention(batch, dtype=torch.float64, backend="reference")
    for softcap in (None, 2.0, None, 3.0):
        got = tree_attention(*parts, plan, scale=0.125, softcap=softcap)
        wanted = tree_attention(*parts, definition, scale=0.125, softcap=softcap)
        torch.testing.assert_close(got, wanted)
