"""Everything a CUDA machine can say about the kernels, in one call of at most eight minutes.

Run: python benchmarks/gpu_suite.py [--minutes 8].  It checks the kernels against the definition,
then prints one table: their time beside SDPA with a dense mask, FlexAttention, and the time the
memory needs for the keys and values alone (bytes by measured copy bandwidth).  What the machine
lacks is named in one line and left out.
"""

import argparse
import importlib.util
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))

from specinfer_kernels import TreeBatch, commit_kv, plan_attention, tree_attention
from specinfer_kernels.testing import (
    Tensors,
    batch_of,
    error_and_budget,
    random_tree,
)

HEADS = (32, 8, 128)
CONTEXTS = (4096, 1024, 16384, 512, 32768)  # the goals' own first, should time run out
ROWS = (1, 32, 8, 64, 128)
REQUESTS = (1, 8, 32)
PAGE = 16
MEMORY = 0.5  # of the card's, which one case may take
WARM_UPS, ROUNDS = 3, 10

CHECKS = [  # contexts, rows, (heads, kv_heads, width), softcap, window
    ([37], [1], (32, 32, 64), None, None),
    ([0, 700, 33], [20, 1, 65], (6, 2, 80), None, None),
    ([5], [200], (4, 4, 96), None, None),
    ([4000, 17], [32, 8], (32, 8, 128), None, None),
    ([900], [64], (28, 4, 128), None, 256),
    ([2000, 3], [32, 9], (8, 4, 256), 50.0, 1024),
]


@dataclass(frozen=True, slots=True)
class Clock:
    """Times calls on the card; the cache is flushed before each, as a model's other layers do."""

    flush: Tensor

    def least(self, call: Callable[[], object]) -> float:
        """Return the least seconds of some rounds."""
        for _ in range(WARM_UPS):
            call()
        times = []
        for _ in range(ROUNDS):
            self.flush.zero_()
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(float(start.elapsed_time(end)) / 1e3)
        return min(times)


def copy_bandwidth(clock: Clock) -> float:
    """Return bytes a second that a large copy reads and writes."""
    source = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / clock.least(lambda: target.copy_(source))


def check_kernels(generator: torch.Generator) -> int:
    """Compare with the definition and return how many cases err too much."""
    failures = 0
    for case, dtype in itertools.product(CHECKS, (torch.bfloat16, torch.float16, torch.float32)):
        contexts, rows, heads, softcap, window = case
        batch = shuffled_batch(contexts, rows, generator)
        given = Tensors.random(batch, *heads, dtype, torch.Generator().manual_seed(1))
        rules = {"scale": heads[2] ** -0.5, "softcap": softcap, "window": window}
        plan = plan_attention(batch, dtype=dtype, backend="triton")
        got = tree_attention(given.query, given.keys, given.values, plan, **rules)
        error, budget = error_and_budget(batch, given, got, **rules)
        verdict = "ok" if error <= budget else "FAILS"
        failures += error > budget
        print(f"check {verdict:5} {dtype!s:15} {case}: error {error:.1e} of {budget:.1e}")
    return failures + check_commit(generator)


def check_commit(generator: torch.Generator) -> int:
    """Move overlapping runs of slots and return whether anything arrived wrong."""
    kv = torch.randn(32, 2, 4096, 8, 128, device="cuda").bfloat16()
    source = torch.randperm(4096, generator=generator)[:512].sort().values.cuda()
    target = torch.arange(512, device="cuda")
    expected = kv.clone()
    expected[:, :, target] = kv[:, :, source]
    commit_kv(kv, source, target)
    wrong = not torch.equal(kv, expected)
    print(f"check {'FAILS' if wrong else 'ok':5} commit_kv: 512 entries of 32 layers")
    return int(wrong)


def shuffled_batch(contexts: list[int], rows: list[int], generator: torch.Generator) -> TreeBatch:
    """Return random trees over pages in random order, on the card."""
    per_request = max(-(-(c + r) // PAGE) for c, r in zip(contexts, rows, strict=True))
    pages = torch.randperm(len(rows) * per_request, generator=generator).view(len(rows), -1)
    trees = [random_tree(r, generator) for r in rows]
    return batch_of(contexts, trees, page_size=PAGE, pages=pages, device="cuda")


def visible(batch: TreeBatch) -> Tensor:
    """Return what every row sees, [B, T, context + T], for requests of equal size."""
    column = torch.arange(batch.max_rows, device=batch.device)
    seen = batch.ancestors[:, column // 64] >> (column % 64) & 1 == 1
    context = seen.new_ones(len(seen), batch.max_total - batch.max_rows)
    return torch.cat([context, seen], 1).view(batch.requests, batch.max_rows, -1)


def dense(batch: TreeBatch, given: Tensors) -> Callable[[], Tensor]:
    """SDPA on keys already laid out for it: no peer is charged for gathering pages."""
    query, keys, values = laid_out(batch, given)
    mask = visible(batch)[:, None]
    return lambda: scaled_dot_product_attention(query, keys, values, mask, enable_gqa=True)


def flex(batch: TreeBatch, given: Tensors) -> Callable[[], Tensor]:
    """FlexAttention on the same, compiled, its block mask made beforehand."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    query, keys, values = laid_out(batch, given)
    seen = visible(batch)

    def rule(request: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return seen[request, row, key]

    sizes = batch.requests, None, batch.max_rows, batch.max_total
    mask = create_block_mask(rule, *sizes, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=True)
    return lambda: compiled(query, keys, values, block_mask=mask, enable_gqa=True)


def laid_out(batch: TreeBatch, given: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    """Return query [B, H, T, D], keys and values [B, K, context + T, D], contiguous."""
    offset = torch.arange(PAGE, device="cuda")
    slots = (batch.pages.long()[:, :, None] * PAGE + offset).flatten(1)[:, : batch.max_total]
    query = given.query.view(batch.requests, batch.max_rows, *given.query.shape[1:])
    keys, values = given.keys[slots], given.values[slots]
    query, keys, values = (part.transpose(1, 2).contiguous() for part in (query, keys, values))
    return query, keys, values


def measure(generator: torch.Generator, deadline: float) -> None:
    """Print a line a case until all are done or time is up."""
    clock = Clock(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
    bandwidth = copy_bandwidth(clock)
    print(f"copy bandwidth {bandwidth / 1e9:.0f} GB/s")
    print("    B context rows    ours us  of floor  SDPA/ours  Flex/ours  to one row")
    one_row: dict[tuple[int, int], float] = {}
    for requests, context, rows in itertools.product(REQUESTS, CONTEXTS, ROWS):
        if time.monotonic() > deadline:
            print("time is up: the remaining cases were left out")
            return
        moved = 2 * requests * context * HEADS[1] * HEADS[2] * 2
        if 4 * moved > MEMORY * torch.cuda.get_device_properties(0).total_memory:
            print(
                f"{requests:5} {context:7} {rows:4} left out: {moved >> 20} MiB of keys and values"
            )
            continue
        batch = shuffled_batch([context] * requests, [rows] * requests, generator)
        on_card = torch.Generator("cuda").manual_seed(2)
        given = Tensors.random(batch, *HEADS, torch.bfloat16, on_card)
        plan = plan_attention(batch, dtype=torch.bfloat16, backend="triton")
        parts = given.query, given.keys, given.values
        ours = clock.least(lambda: tree_attention(*parts, plan, scale=HEADS[2] ** -0.5))  # noqa: B023
        one_row.setdefault((requests, context), ours)
        peers = [peer_time(clock, peer, batch, given) for peer in (dense, flex)]
        floor = moved / bandwidth
        ratios = " ".join("         -" if p is None else f"{p / ours:10.2f}" for p in peers)
        grown = ours / one_row[requests, context]
        line = f"{requests:5} {context:7} {rows:4} {ours * 1e6:10.0f} {floor / ours:9.2f}"
        print(f"{line} {ratios} {grown:11.2f}", flush=True)


def peer_time(
    clock: Clock,
    peer: Callable[[TreeBatch, Tensors], Callable[[], Tensor]],
    batch: TreeBatch,
    given: Tensors,
) -> float | None:
    """Return a peer's least seconds, or None, said on stderr, where it cannot run here."""
    try:
        return clock.least(peer(batch, given))
    except (RuntimeError, ImportError, ValueError) as error:
        print(f"{peer.__name__} left out: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def missing() -> Iterator[str]:
    """Say what this machine lacks."""
    if not torch.cuda.is_available():
        yield f"no CUDA device (torch {torch.__version__})"
    if importlib.util.find_spec("triton") is None:
        yield "the package triton is not installed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8, help="after which no case is begun")
    wish = parser.parse_args()
    lacks = list(missing())
    if lacks:
        print(f"gpu_suite: nothing to measure: {'; '.join(lacks)}", file=sys.stderr)
        return 2
    deadline = time.monotonic() + wish.minutes * 60
    card = torch.cuda.get_device_name(0)
    import triton  # type: ignore[import-untyped]

    print(f"{card}, torch {torch.__version__}, triton {triton.__version__}, heads {HEADS}, bf16")
    generator = torch.Generator().manual_seed(0)
    failures = check_kernels(generator)
    measure(generator, deadline)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
