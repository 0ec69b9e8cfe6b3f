"""Tree attention on a CPU: the definition, the fast backend, and what must not matter."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specinfer_kernels import KernelError, TreeBatch, plan_attention, tree_attention
from specinfer_kernels.testing import Tensors, batch_of, chain, padded, random_tree

SEVEN = [-1, 0, 0, 1, 1, 2, 3]  # root; children 1, 2; 1 has 3, 4; 2 has 5; 3 has 6
SEVEN_SEES = """
1......
11.....
1.1....
11.1...
11..1..
1.1..1.
11.1..1
"""

BATCHES = {
    "one decode row": ([37], [1]),
    "no context": ([0], [9]),
    "decode rows": ([5, 90, 33], [1, 1, 1]),
    "ragged": ([0, 37, 101, 12], [20, 1, 13, 65]),
    "full word": ([3, 70], [64, 64]),
    "four words": ([10], [200]),
    "chunk beside trees": ([0, 40, 41], [150, 8, 8]),
}
HEADS = {"MHA": (2, 2, 16), "GQA 3": (6, 2, 64), "GQA 4": (8, 2, 80)}


def make(
    contexts: list[int], rows: list[int], generator: torch.Generator, page_size: int = 16
) -> TreeBatch:
    """Return random trees whose pages lie in random order."""
    per_request = max(-(-(c + r) // page_size) for c, r in zip(contexts, rows, strict=True))
    count = len(rows) * per_request
    pages = torch.randperm(count + 3, generator=generator)[:count].view(len(rows), -1)
    trees = [random_tree(r, generator) for r in rows]
    return batch_of(contexts, trees, page_size=page_size, pages=pages)


def by_head(tensors: Tensors) -> Tensors:
    """Return the same with pools whose entries of one head lie beside each other."""
    pools = (
        pool.transpose(0, 1).contiguous().transpose(0, 1) for pool in (tensors.keys, tensors.values)
    )
    return Tensors(tensors.query, *pools)


def parts(given: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    return given.query, given.keys, given.values


def attend(batch: TreeBatch, tensors: Tensors, backend: str = "cpu", **rules: object) -> Tensor:
    plan = plan_attention(batch, dtype=tensors.query.dtype, backend=backend)
    return tree_attention(*parts(tensors), plan, scale=0.125, **rules)  # type: ignore[arg-type]


def test_the_definition_hides_what_the_picture_shows(generator: torch.Generator) -> None:
    batch = batch_of([2], [SEVEN])
    tensors = Tensors.random(batch, 1, 1, 4, torch.float64, generator)
    picture = [[mark == "1" for mark in line] for line in SEVEN_SEES.split()]
    seen = torch.cat([torch.ones(7, 2, dtype=torch.bool), torch.tensor(picture)], dim=1)
    scores = tensors.query[:, 0] @ tensors.keys[:9, 0].T * 0.125
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    got = attend(batch, tensors, "reference")[:, 0]
    torch.testing.assert_close(got, weights @ tensors.values[:9, 0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("case", BATCHES)
def test_cpu_stays_within_twice_the_plain_error(
    case: str,
    heads: str,
    dtype: torch.dtype,
    generator: torch.Generator,
    within_budget: Callable[..., None],
) -> None:
    batch = make(*BATCHES[case], generator)
    plan = plan_attention(batch, dtype=dtype, backend="cpu")
    tensors = Tensors.random(batch, *HEADS[heads], dtype, generator)
    within_budget(plan, tensors)
    within_budget(plan, by_head(tensors))


@pytest.mark.parametrize("rules", [{"softcap": 2.0}, {"window": 6}, {"softcap": 5.0, "window": 1}])
@pytest.mark.parametrize("case", BATCHES)
def test_cpu_caps_scores_and_slides_windows(
    case: str,
    rules: dict[str, float],
    generator: torch.Generator,
    within_budget: Callable[..., None],
) -> None:
    batch = make(*BATCHES[case], generator)
    tensors = Tensors.random(batch, 6, 2, 32, torch.float32, generator)
    within_budget(plan_attention(batch, dtype=torch.float32, backend="cpu"), tensors, **rules)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("rows", [1, 5, 130, 300])
def test_a_chain_without_context_is_causal_attention(
    rows: int, backend: str, generator: torch.Generator
) -> None:
    batch = batch_of([0], [chain(rows)])
    tensors = Tensors.random(batch, 2, 2, 16, torch.float64, generator)
    q, k, v = (
        part[:rows].transpose(0, 1) for part in (tensors.query, tensors.keys, tensors.values)
    )
    causal = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.125)
    torch.testing.assert_close(attend(batch, tensors, backend), causal.transpose(0, 1))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("case", BATCHES)
def test_padding_changes_nothing_and_comes_out_as_nought(
    case: str, backend: str, generator: torch.Generator
) -> None:
    batch = make(*BATCHES[case], generator)
    tensors = Tensors.random(batch, 4, 2, 16, torch.float64, generator)
    wider = padded(batch, rows=batch.rows + 5, requests=batch.requests + 3, longest=256, pages=32)
    query = torch.cat([tensors.query, torch.full((5, 4, 16), torch.nan, dtype=torch.float64)])
    got = attend(wider, Tensors(query, tensors.keys, tensors.values), backend)
    assert got[batch.rows :].eq(0).all()
    torch.testing.assert_close(got[: batch.rows], attend(batch, tensors, backend))


def test_siblings_may_swap_places(generator: torch.Generator) -> None:
    tensors = Tensors.random(batch_of([4], [SEVEN]), 4, 2, 16, torch.float64, generator)
    swapped = [0, 2, 1, 5, 3, 4, 6]  # where row n of the new order was before
    new_parents = [-1, 0, 0, 1, 2, 2, 4]
    moved = Tensors(tensors.query[swapped], tensors.keys.clone(), tensors.values.clone())
    for pool, old in ((moved.keys, tensors.keys), (moved.values, tensors.values)):
        pool[4:11] = old[4:11][swapped]
    before = attend(batch_of([4], [SEVEN]), tensors)
    after = attend(batch_of([4], [new_parents]), moved)
    torch.testing.assert_close(after, before[swapped])


def test_another_branch_changes_no_other_row(generator: torch.Generator) -> None:
    wider = batch_of([9], [[*SEVEN, 2, 7]])
    tensors = Tensors.random(wider, 4, 2, 16, torch.float64, generator)
    narrow = Tensors(tensors.query[:7], tensors.keys, tensors.values)
    torch.testing.assert_close(
        attend(wider, tensors)[:7], attend(batch_of([9], [SEVEN]), narrow), rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("page_size", [1, 16, 256])
def test_pages_in_order_and_shuffled_agree(page_size: int, generator: torch.Generator) -> None:
    shuffled = make([33, 60], [7, 12], generator, page_size)
    tensors = Tensors.random(shuffled, 4, 2, 16, torch.float64, generator)
    trees = [random_tree(7, generator), random_tree(12, generator)]
    ordered = batch_of([33, 60], trees, page_size=page_size)
    batch = batch_of([33, 60], trees, page_size=page_size, pages=shuffled.pages)
    slots = (shuffled.pages.long()[:, :, None] * page_size + torch.arange(page_size)).flatten()
    in_order = Tensors(tensors.query, tensors.keys[slots], tensors.values[slots])
    for laid_out in (by_head, lambda given: given):
        torch.testing.assert_close(
            attend(batch, laid_out(tensors)), attend(ordered, laid_out(in_order))
        )


def test_one_plan_serves_layers_of_either_kind(generator: torch.Generator) -> None:
    batch = make([20, 30], [3, 9], generator)
    plan = plan_attention(batch, dtype=torch.float64, backend="cpu")
    for window in (None, 5, None, 5):
        tensors = Tensors.random(batch, 4, 2, 16, torch.float64, generator)
        got = tree_attention(*parts(tensors), plan, scale=0.125, window=window)
        torch.testing.assert_close(got, attend(batch, tensors, "reference", window=window))


def test_pools_of_other_layouts_are_named(generator: torch.Generator) -> None:
    batch = make([100], [3], generator)
    tensors = Tensors.random(batch, 4, 2, 16, torch.float64, generator)
    with pytest.raises(KernelError, match="keys lie by .*, values by"):
        attend(batch, Tensors(tensors.query, tensors.keys, by_head(tensors).values))
    apart = [torch.stack([pool, pool], 2)[:, :, 0] for pool in (tensors.keys, tensors.values)]
    with pytest.raises(KernelError, match=r"pools are neither \[S, K, D\] nor \[K, S, D\]"):
        attend(batch, Tensors(tensors.query, *apart))


def test_slots_beside_the_pages_change_nothing(generator: torch.Generator) -> None:
    """Head by head, pages are found by their number only where pools are whole pages long."""
    batch = make([20, 33], [3, 3], generator)
    tensors = by_head(Tensors.random(batch, 4, 2, 16, torch.float64, generator))
    longer = (torch.cat([pool, pool[:1]]) for pool in (tensors.keys, tensors.values))
    grown = by_head(Tensors(tensors.query, *longer))
    assert torch.equal(attend(batch, grown), attend(batch, tensors))


def test_pools_may_be_views_of_one_cache(generator: torch.Generator) -> None:
    batch = make([20, 30], [3, 9], generator)
    tensors = Tensors.random(batch, 4, 2, 16, torch.float64, generator)
    kv = torch.stack([tensors.keys, tensors.values])[None]
    viewed = Tensors(tensors.query, kv[0, 0], kv[0, 1])
    assert torch.equal(attend(batch, viewed), attend(batch, tensors))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"softcap": 0.0}, "softcap is 0.0"),
        ({"window": 0}, "window is 0"),
        ({"rows": 6}, "query has 6 rows; the plan was made for 7"),
        ({"heads": 3}, "3 heads of 16 cannot read 2 of 16"),
        ({"dtype": torch.float32}, "the plan is for torch.float64"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    change: dict[str, object], message: str, generator: torch.Generator
) -> None:
    batch = batch_of([4], [SEVEN])
    dtype = change.pop("dtype", torch.float64)
    shape = (change.pop("rows", 7), change.pop("heads", 4), 16)
    tensors = Tensors.random(batch, 4, 2, 16, torch.float64, generator)
    query = torch.zeros(shape, dtype=dtype)  # type: ignore[call-overload]
    plan = plan_attention(batch, dtype=torch.float64)
    with pytest.raises(KernelError, match=message):
        tree_attention(query, tensors.keys, tensors.values, plan, scale=1, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("rows", [1, 7])
def test_a_plan_looks_at_every_layer_however_many_went_before(
    rows: int, backend: str, generator: torch.Generator
) -> None:
    batch = batch_of([4], [chain(rows)])
    plan = plan_attention(batch, dtype=torch.float32, backend=backend)
    q, k, v = parts(Tensors.random(batch, 4, 2, 16, torch.float32, generator))

    def refused(message: str, *layer: Tensor, **rules: float) -> None:
        tree_attention(q, k, v, plan, scale=1)
        with pytest.raises(KernelError, match=message):
            tree_attention(*layer, plan, scale=1, **rules)  # type: ignore[arg-type]

    for wrong in range(3):
        mixed = [part.double() if n == wrong else part for n, part in enumerate((q, k, v))]
        refused("the plan is for torch.float32", *mixed)
    refused("the plan is for torch.float32", q.double(), k.double(), v.double())
    refused("query has .* rows", torch.cat([q, q[:1]]), k, v)
    refused("8 heads of 8 cannot read 2 of 16", q.view(rows, 8, 8), k, v)
    refused("4 heads of 16 cannot read 3 of 16", q, k[:, [0, 1, 1]], v[:, [0, 1, 1]])
    refused(r"keys .* and values .* differ", q, k, v[:, :1])
    refused(r"keys .* and values .* differ", q, k[:-1], v)
    refused("softcap is -1", q, k, v, softcap=-1)
    refused("window is 0", q, k, v, window=0)
    if backend == "cpu":
        turned = v.transpose(0, 1).contiguous().transpose(0, 1)
        refused("keys lie by .*, values by", q, k, turned)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]], ids=["in order", "shuffled"])
@pytest.mark.parametrize("by_heads", [False, True])
def test_pools_shorter_than_the_block_tables_say_are_refused(
    order: list[int], by_heads: bool, generator: torch.Generator
) -> None:
    batch = batch_of([40], [SEVEN], pages=torch.tensor([order]))
    given = Tensors.random(batch, 4, 2, 16, torch.float32, generator)
    short = Tensors(given.query, given.keys[:32].contiguous(), given.values[:32].contiguous())
    with pytest.raises(KernelError, match="reach beyond the pools' 32 slots"):
        attend(batch, by_head(short) if by_heads else short)


def test_batches_that_contradict_themselves_are_refused() -> None:
    good = batch_of([4], [SEVEN])

    def changed(**fields: object) -> TreeBatch:
        names = TreeBatch.__dataclass_fields__
        return TreeBatch(**{name: getattr(good, name) for name in names} | fields)

    with pytest.raises(KernelError, match=r"contexts must be torch.int32 \(1,\)"):
        changed(contexts=torch.tensor([4]))
    with pytest.raises(KernelError, match="max_rows is 65"):
        changed(max_rows=65)
    with pytest.raises(KernelError, match="max_total is 17; the block tables hold 16"):
        changed(max_total=17)
    blind, clairvoyant = good.ancestors.clone(), good.ancestors.clone()
    blind[3] = 1
    clairvoyant[0] = 0b11
    for ancestors, message in ((blind, "see itself"), (clairvoyant, "later one")):
        with pytest.raises(KernelError, match=message):
            plan_attention(changed(ancestors=ancestors), dtype=torch.float32)
    with pytest.raises(KernelError, match="7 rows after 9; limits 7 rows, 11 in all"):
        plan_attention(changed(contexts=torch.tensor([9], dtype=torch.int32)), dtype=torch.float32)
    with pytest.raises(KernelError, match="attention in torch.int64"):
        plan_attention(good, dtype=torch.int64)


@pytest.mark.parametrize("by_heads", [False, True])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize(("contexts", "rows"), [([5, 90, 33], [1, 1, 1]), ([40, 40], [8, 8])])
def test_what_others_hold_is_never_read(
    contexts: list[int],
    rows: list[int],
    window: int | None,
    by_heads: bool,
    generator: torch.Generator,
) -> None:
    """Every slot that no row of the batch may see is poisoned."""
    batch = make(contexts, rows, generator)
    tensors = Tensors.random(batch, 4, 2, 16, torch.float64, generator)
    tensors = by_head(tensors) if by_heads else tensors
    clean = attend(batch, tensors, window=window)
    own = torch.zeros(len(tensors.keys), dtype=torch.bool)
    for request, (context, count) in enumerate(zip(contexts, rows, strict=True)):
        logical = torch.arange(context + count)
        own[batch.pages[request].long()[logical // 16] * 16 + logical % 16] = True
    for pool in (tensors.keys, tensors.values):
        pool[~own] = torch.nan
    assert torch.equal(attend(batch, tensors, window=window), clean)
