"""Tree attention on this CPU against what else torch offers: one table of microseconds and ratios.

Run: python benchmarks/kernels_cpu.py.  A ratio is the peer's time by ours, so above 1 is faster.
All candidates take turns, one round forwards and the next backwards, so that a busy machine slows
all of them; a ratio is the median of the rounds' ratios, a time the median of the rounds' times.
Each goes through LAYERS layers' keys and values of its own, more than a cache holds.  All take
queries [N, H, D] and return rows [N, H, D].  Ours reads pools laid out
head by head, as the engine's are on a CPU.  `dense` gathers the slots of [S, K, D] pools and
masks densely, as peers without a tree kernel do; `contiguous` is SDPA on the filled part of a
cache [1, K, S, D] that serves one request.
"""

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specinfer_kernels import AttentionPlan, TreeBatch, plan_attention, tree_attention
from specinfer_kernels.testing import Tensors, batch_of, random_tree

HEADS = {"SmolLM2-135M": (9, 3, 64), "Llama-3-8B": (32, 8, 128)}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PAGE = 16
LAYERS = 16
LEAST_ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Case:
    model: str
    dtype: str
    requests: int
    context: int
    rows: int
    shuffled: bool

    def batch(self, generator: torch.Generator) -> TreeBatch:
        trees = [random_tree(self.rows, generator) for _ in range(self.requests)]
        per_request = -(-(self.context + self.rows) // PAGE)
        count = self.requests * per_request
        order = torch.randperm(count, generator=generator) if self.shuffled else torch.arange(count)
        pages = order.view(self.requests, -1)
        return batch_of([self.context] * self.requests, trees, page_size=PAGE, pages=pages)


Layer = Callable[[Tensors], Callable[[], Tensor]]


def candidates(case: Case, generator: torch.Generator) -> dict[str, Callable[[], object]]:
    """Return all layers' attention as a call, ours and the peers'.

    Plans and masks are made beforehand, once for all layers, as a step does.
    """
    batch = case.batch(generator)
    heads, dtype = HEADS[case.model], DTYPES[case.dtype]
    peers = {"ours": _ours, "dense": _dense}
    if case.requests == 1 and not case.shuffled:
        peers["contiguous"] = _contiguous
    layers = {name: peer(batch, dtype, heads[2] ** -0.5) for name, peer in peers.items()}
    # Layer by layer, so that nobody's lie in memory as nobody else's do: it was worth 1 %.
    calls: dict[str, list[Callable[[], Tensor]]] = {name: [] for name in peers}
    for _ in range(LAYERS):
        for name, layer in layers.items():
            calls[name].append(layer(Tensors.random(batch, *heads, dtype, generator)))
    return {name: partial(_all, made) for name, made in calls.items()}


def _all(calls: Sequence[Callable[[], Tensor]]) -> None:
    for call in calls:
        call()


def _ours(batch: TreeBatch, dtype: torch.dtype, scale: float) -> Layer:
    plan = _plan(batch, dtype)

    def layer(given: Tensors) -> Callable[[], Tensor]:
        parts = _by_head(given)
        return lambda: tree_attention(*parts, plan, scale=scale)

    return layer


def _plan(batch: TreeBatch, dtype: torch.dtype) -> AttentionPlan:
    return plan_attention(batch, dtype=dtype, backend="cpu")


def _by_head(given: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    keys, values = (
        pool.transpose(0, 1).contiguous().transpose(0, 1) for pool in (given.keys, given.values)
    )
    return given.query, keys, values


def _dense(batch: TreeBatch, dtype: torch.dtype, scale: float) -> Layer:
    """SDPA over gathered slots, [B, H, T, D] with GQA, and a mask of the query's dtype."""
    pages = batch.pages.long()
    total, rows = batch.max_total, batch.max_rows
    slots = (pages[:, :, None] * PAGE + torch.arange(PAGE)).flatten(1)[:, :total].flatten()
    bias = _bias(batch, dtype)

    def attend(given: Tensors) -> Tensor:
        query = given.query.view(batch.requests, rows, *given.query.shape[1:]).transpose(1, 2)
        keys, values = (
            pool.index_select(0, slots).view(batch.requests, total, *pool.shape[1:]).transpose(1, 2)
            for pool in (given.keys, given.values)
        )
        seen = scaled_dot_product_attention(
            query, keys, values, attn_mask=bias, scale=scale, enable_gqa=True
        )
        return seen.transpose(1, 2).reshape(given.query.shape)

    return lambda given: partial(attend, given)


def _contiguous(batch: TreeBatch, dtype: torch.dtype, scale: float) -> Layer:
    """SDPA on the filled part of a cache [1, K, S, D], as one that serves a single request is."""
    bias = None if batch.max_rows == 1 else _bias(batch, dtype)
    filled = batch.max_total

    def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        seen = scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            keys[:, :, :filled],
            values[:, :, :filled],
            attn_mask=bias,
            scale=scale,
            enable_gqa=True,
        )
        return seen[0].transpose(0, 1)

    def layer(given: Tensors) -> Callable[[], Tensor]:
        pools = (pool.transpose(0, 1)[None].contiguous() for pool in (given.keys, given.values))
        return partial(attend, given.query, *pools)

    return layer


def _bias(batch: TreeBatch, dtype: torch.dtype) -> Tensor:
    """Return [B, 1, T, context + T] for requests of equal size."""
    rows, context = batch.max_rows, batch.max_total - batch.max_rows
    column = torch.arange(rows)
    seen = batch.ancestors[:, column // 64] >> (column % 64) & 1 == 1
    tree = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))
    return torch.cat([tree.new_zeros(len(tree), context), tree], dim=1).view(
        batch.requests, 1, rows, -1
    )


def timed(calls: dict[str, Callable[[], object]], budget: float) -> dict[str, list[float]]:
    """Return each call's seconds in every round; candidates take turns until budget is spent."""
    # With one thread its own time counts, which a busy machine's other processes do not add to.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    turns, end = list(calls.items()), clock() + budget
    while clock() < end or len(rounds["ours"]) < LEAST_ROUNDS:
        for name, call in turns:
            start = clock()
            call()
            rounds[name].append(clock() - start)
        turns.reverse()
    return rounds


def ratio(peer: Sequence[float], ours: Sequence[float]) -> float:
    return median(theirs / mine for theirs, mine in zip(peer, ours, strict=True))


def planning_time(case: Case, generator: torch.Generator) -> float:
    """Return the seconds of a step's own work, which all its layers share."""
    batch = case.batch(generator)
    given = Tensors.random(batch, *HEADS[case.model], DTYPES[case.dtype], generator)
    parts, kept = _by_head(given), _plan(batch, given.query.dtype)
    calls = {
        "first": lambda: tree_attention(*parts, _plan(batch, given.query.dtype), scale=1.0),
        "ours": lambda: tree_attention(*parts, kept, scale=1.0),
    }
    rounds = timed(calls, 0.3)
    return median(a - b for a, b in zip(rounds["first"], rounds["ours"], strict=True))


def cases(models: Sequence[str], dtypes: Sequence[str], quick: bool) -> list[Case]:
    shapes = (
        [(1, 128), (1, 1024), (8, 1024)]
        if quick
        else [(1, 128), (1, 1024), (1, 4096), (4, 256), (8, 256), (8, 1024)]
    )
    return [
        Case(model, dtype, requests, context, rows, shuffled)
        for model in models
        for dtype in dtypes
        for requests, context in shapes
        for rows in ((1, 32) if quick else (1, 8, 32, 64))
        for shuffled in (False, True)
    ]


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=HEADS, action="append")
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--quick", action="store_true", help="a third of the rows")
    parser.add_argument("--seconds", type=float, default=0.5, help="spent on each row")
    wish = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.platform()}")
    figures = "ours us  dense/ours  contig/ours  plan us"
    print(f"{'model':13} dtype  B context rows pages      {figures}")
    generator = torch.Generator().manual_seed(0)
    for case in cases(wish.model or ["SmolLM2-135M"], wish.dtype or list(DTYPES), wish.quick):
        rounds = timed(candidates(case, generator), wish.seconds)
        ours, peer = rounds["ours"], rounds.get("contiguous")
        print(
            f"{case.model:13} {case.dtype:5} {case.requests:2} {case.context:7} {case.rows:4} "
            f"{'shuffled' if case.shuffled else 'in order':8} {median(ours) / LAYERS * 1e6:9.0f} "
            f"{ratio(rounds['dense'], ours):11.3f} "
            f"{f'{ratio(peer, ours):12.3f}' if peer else ' ' * 12} "
            f"{planning_time(case, generator) * 1e6:8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
