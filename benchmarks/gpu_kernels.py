"""The kernels: checked against the definition, then timed beside what else torch offers."""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from gpu_rig import Check, Clock, Rig, Until, attempt, copy_bandwidth, lacking
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specinfer_kernels import TreeBatch, commit_kv, plan_attention, tree_attention
from specinfer_kernels.testing import Tensors, batch_of, error_and_budget, padded, random_tree

PAGE = 16
MEMORY = 0.5  # of the card's, which one case may take
FLEX_SECONDS = 120.0  # it compiles anew for some shapes, for many seconds each
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
Case = tuple[int, int, int]  # requests, context, rows
Peer = Callable[[TreeBatch, Tensors], Callable[[], Tensor]]


def check_kernels(rig: Rig, generator: torch.Generator, until: Until) -> int:
    """Compare with the definition and return how many cases err too much or end in an error."""
    failures = check_commit(rig, generator)
    # bfloat16 of all shapes before the other types, should compiling take too long.
    cases = list(itertools.product(DTYPES, rig.checks, (False, True)))
    for begun, (dtype, check, loose) in enumerate(cases):
        if until.leaves_out("checks", begun, len(cases)):
            break
        what = f"{'padded' if loose else 'exact'} {check} {dtype}"
        failures += attempt(what, partial(_check, rig, generator, what, dtype, check, loose))
    return failures


def _check(
    rig: Rig, generator: torch.Generator, what: str, dtype: torch.dtype, check: Check, loose: bool
) -> int:
    contexts, rows, heads, softcap, window = check
    exact = shuffled_batch(rig, contexts, rows, generator)
    batch = in_a_frame(exact) if loose else exact
    given = Tensors.random(batch, *heads, dtype, torch.Generator().manual_seed(1))
    scale = heads[2] ** -0.5
    plan = plan_attention(batch, dtype=dtype, backend=rig.backend)
    parts = given.query, given.keys, given.values
    got = tree_attention(*parts, plan, scale=scale, softcap=softcap, window=window)
    error, budget = error_and_budget(batch, given, got, scale=scale, softcap=softcap, window=window)
    return verdict(what, error, budget)


def verdict(what: str, error: float, budget: float) -> int:
    """Print a line; return 1 where the error is too large, or no number."""
    fails = not error <= budget
    print(f"check {'FAILS' if fails else 'ok':5} {what}: error {error:.1e} of {budget:.1e}")
    return int(fails)


def in_a_frame(batch: TreeBatch) -> TreeBatch:
    """Return the batch with room to spare, as a captured graph runs it."""
    longest = 1 << (batch.max_rows - 1).bit_length()
    return padded(
        batch,
        rows=batch.rows + 7,
        requests=batch.requests + 2,
        longest=longest,
        pages=2 * batch.pages.shape[1],
    )


def check_peers(rig: Rig, generator: torch.Generator) -> int:
    """FlexAttention and SDPA must mean the same trees, or the table compares nothing."""
    context, rows = rig.contexts[-1], rig.rows[1]
    batch = shuffled_batch(rig, [context] * 2, [rows] * 2, generator)
    given = Tensors.random(batch, *rig.heads, torch.float32, torch.Generator().manual_seed(3))
    plan = plan_attention(batch, dtype=torch.float32, backend=rig.backend)
    parts = given.query, given.keys, given.values
    ours = tree_attention(*parts, plan, scale=rig.heads[2] ** -0.5)
    failures = 0
    for peer in (dense, expanded, flex):
        try:
            theirs = peer(batch, given)().transpose(1, 2).reshape(ours.shape)
        except Exception as error:
            lacking(f"check of {peer.__name__}", error)
            continue
        distance = float((theirs - ours).abs().max())
        failures += verdict(f"{peer.__name__} sees what we see", distance, 2e-2)
    return failures


def check_commit(rig: Rig, generator: torch.Generator) -> int:
    """Move overlapping runs of slots and return whether anything arrived wrong."""
    layers, slots, moved = rig.commit
    kv = torch.randn(layers, 2, slots, 8, rig.heads[2], device=rig.device).bfloat16()
    source = torch.randperm(slots, generator=generator)[:moved].sort().values.to(rig.device)
    target = torch.arange(moved, device=rig.device)
    expected = kv.clone()
    expected[:, :, target] = kv[:, :, source]
    commit_kv(kv, source, target, backend=rig.backend)
    return verdict(f"commit_kv moves {moved} entries", float(not torch.equal(kv, expected)), 0)


def shuffled_batch(
    rig: Rig, contexts: list[int], rows: list[int], generator: torch.Generator
) -> TreeBatch:
    """Return random trees over pages in random order, on the device."""
    per_request = max(-(-(c + r) // PAGE) for c, r in zip(contexts, rows, strict=True))
    pages = torch.randperm(len(rows) * per_request, generator=generator).view(len(rows), -1)
    trees = [random_tree(r, generator) for r in rows]
    return batch_of(contexts, trees, page_size=PAGE, pages=pages, device=rig.device)


def tree_bits(batch: TreeBatch) -> Tensor:
    """Return which of its request's rows every row sees, [B, T, T], for trees of equal size."""
    column = torch.arange(batch.max_rows, device=batch.device)
    seen = batch.ancestors[:, column // 64] >> (column % 64) & 1 == 1
    return seen.view(batch.requests, batch.max_rows, batch.max_rows)


def visible(batch: TreeBatch) -> Tensor:
    """Return what every row sees, [B, 1, T, context + T], for requests of equal size."""
    seen = tree_bits(batch)
    context = seen.new_ones(*seen.shape[:2], batch.max_total - batch.max_rows)
    return torch.cat([context, seen], 2)[:, None]


def dense(batch: TreeBatch, given: Tensors) -> Callable[[], Tensor]:
    """SDPA on keys already laid out for it: no peer is charged for gathering pages."""
    query, keys, values = laid_out(batch, given)
    mask = visible(batch)
    return lambda: scaled_dot_product_attention(query, keys, values, mask, enable_gqa=True)


def expanded(batch: TreeBatch, given: Tensors) -> Callable[[], Tensor]:
    """The same with keys repeated for every query head beforehand, which more kernels take."""
    query, keys, values = laid_out(batch, given)
    group = query.shape[1] // keys.shape[1]
    keys, values = (part.repeat_interleave(group, dim=1) for part in (keys, values))
    mask = visible(batch)
    return lambda: scaled_dot_product_attention(query, keys, values, mask)


def flex(batch: TreeBatch, given: Tensors) -> Callable[[], Tensor]:
    """FlexAttention, compiled, its block mask made beforehand."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    query, keys, values = laid_out(batch, given)
    seen, context = tree_bits(batch), batch.max_total - batch.max_rows

    def rule(request: Tensor, head: Tensor, row: Tensor, key: Tensor) -> Tensor:
        return (key < context) | seen[request, row, (key - context).clamp(min=0)]

    sizes = batch.requests, None, batch.max_rows, batch.max_total
    mask = create_block_mask(rule, *sizes, device=str(batch.device))
    attend: Any = flex_attention
    if batch.device.type == "cuda":  # compiling for a CPU takes longer than the whole dry run
        torch._dynamo.config.recompile_limit = 128  # past it, it would silently run eagerly
        attend = torch.compile(flex_attention, dynamic=True)
    return lambda: attend(query, keys, values, block_mask=mask, enable_gqa=True)


def laid_out(batch: TreeBatch, given: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    """Return query [B, H, T, D], keys and values [B, K, context + T, D], contiguous."""
    offset = torch.arange(PAGE, device=batch.device)
    slots = (batch.pages.long()[:, :, None] * PAGE + offset).flatten(1)[:, : batch.max_total]
    query = given.query.view(batch.requests, batch.max_rows, *given.query.shape[1:])
    parts = query, given.keys[slots], given.values[slots]
    query, keys, values = (part.transpose(1, 2).contiguous() for part in parts)
    return query, keys, values


@dataclass(slots=True)
class Peers:
    """Times the competition; what cannot run here, or has had its time, is named once."""

    clock: Clock
    flex_left: float = FLEX_SECONDS

    def sdpa(self, batch: TreeBatch, given: Tensors) -> float | None:
        times = [self._time(peer, batch, given) for peer in (dense, expanded)]
        return min((found for found in times if found is not None), default=None)

    def flex(self, batch: TreeBatch, given: Tensors) -> float | None:
        if self.flex_left <= 0:
            return None
        started = time.monotonic()
        found = self._time(flex, batch, given)
        self.flex_left -= time.monotonic() - started
        if self.flex_left <= 0:
            print(f"flex left out from here on: its {FLEX_SECONDS:.0f} s are spent")
        return found

    def _time(self, peer: Peer, batch: TreeBatch, given: Tensors) -> float | None:
        try:
            return self.clock.least(peer(batch, given))
        except Exception as error:
            lacking(peer.__name__, error)
            return None


def measure_kernels(rig: Rig, generator: torch.Generator, until: Until) -> int:
    """Print a line a case until all are done or time is up; return how many end in an error."""
    clock = Clock.of(rig)
    peers = Peers(clock)
    bandwidth = copy_bandwidth(rig, clock)
    print(f"\nattention, heads {rig.heads}, bf16; copy bandwidth {bandwidth / 1e9:.0f} GB/s")
    print("    B context rows    ours us  of floor  SDPA/ours  Flex/ours  to one row")
    one_row: dict[tuple[int, int], float] = {}
    failures = 0
    cases = list(itertools.product(rig.requests, rig.contexts, rig.rows))
    for begun, case in enumerate(cases):
        if until.leaves_out("attention", begun, len(cases)):
            break
        moved = 2 * case[0] * case[1] * rig.heads[1] * rig.heads[2] * 2
        label = "{:5} {:7} {:4}".format(*case)
        if 4 * moved > MEMORY * memory(rig):
            print(f"{label} left out: {moved >> 20} MiB of keys")
            continue

        def line(case: Case = case, label: str = label, floor: float = moved / bandwidth) -> None:
            print(f"{label} {_row(rig, generator, peers, case, floor, one_row)}", flush=True)

        failures += attempt(f"attention {label}", line)
    return failures


def _row(
    rig: Rig,
    generator: torch.Generator,
    peers: "Peers",
    case: Case,
    floor: float,
    one_row: dict[tuple[int, int], float],
) -> str:
    """Return a case's figures; floor is the seconds that the memory needs for its keys."""
    requests, context, rows = case
    batch = shuffled_batch(rig, [context] * requests, [rows] * requests, generator)
    on_device = torch.Generator(rig.device).manual_seed(2)
    given = Tensors.random(batch, *rig.heads, torch.bfloat16, on_device)
    plan = plan_attention(batch, dtype=torch.bfloat16, backend=rig.backend)
    parts, scale = (given.query, given.keys, given.values), rig.heads[2] ** -0.5
    ours = peers.clock.least(lambda: tree_attention(*parts, plan, scale=scale))
    if rows == 1:
        one_row[requests, context] = ours
    ratios = [
        "         -" if theirs is None else f"{theirs / ours:10.2f}"
        for theirs in (peers.sdpa(batch, given), peers.flex(batch, given))
    ]
    plain = one_row.get((requests, context))
    grown = "          -" if plain is None else f"{ours / plain:11.2f}"
    return f"{ours * 1e6:10.0f} {floor / ours:9.2f} {' '.join(ratios)} {grown}"


def say_spills() -> None:
    """Print which of the kernels launched so far keep registers in memory: in a loop it costs time.

    None does as compiled by Triton 3.9; by 3.6 a few do, outside of loops.
    """
    from specinfer_kernels.commit_kv.kernel import move_columns
    from specinfer_kernels.sampling import draw_kernel, walk_kernel, warp_kernel
    from specinfer_kernels.tree_attention import kernel

    sampling = warp_kernel.warp_row, draw_kernel.draw_row
    walks = walk_kernel.multi_step, walk_kernel.traversal
    launched, spilling = 0, 0
    for each in (kernel.attend_tile, kernel.combine_splits, move_columns, *sampling, *walks):
        caches = getattr(each, "device_caches", {}).values()  # none where it is interpreted
        for binary in (binary for cache in caches for binary in cache[0].values()):
            launched += 1
            if getattr(binary, "n_spills", 0):
                spilling += 1
                shape = f"{binary.metadata.num_warps} warps, {binary.metadata.num_stages} stages"
                told = f"{each.__name__} ({shape}) spills {binary.n_spills} registers"
                print(f"note: {told} with this Triton")
    print(f"{launched} variants of kernels were launched, {spilling} spill")


def memory(rig: Rig) -> float:
    """Return the device's bytes."""
    return 1e9 if rig.dry else torch.cuda.get_device_properties(0).total_memory
