"""The engine on random weights: what a step is made of, and plain steps against trees.

Random models accept nothing of each other, so the numbers of accepted tokens are replayed: every
step does all its work, the verdict included, and then keeps as much of the tree as is its turn.
"""

import gc
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from gpu_rig import Rig, Until, attempt, wait
from transformers import AutoModelForCausalLM, LlamaConfig

import specinfer.speculate
from specinfer.attend import tree_attention_name
from specinfer.choices import SeededChoices
from specinfer.draft.expansion import Expansion
from specinfer.draft.planner import Planner, cut_short
from specinfer.draft.pool import Pool
from specinfer.draft.ranks import Profile
from specinfer.graphs import Buckets, CudaCapture, Graphs, Run
from specinfer.kv_cache import KVCache
from specinfer.llm import CausalLM
from specinfer.request import Request
from specinfer.scheduler import Scheduler
from specinfer.speculate import Job, Outcome, Speculator
from specinfer.testing.toy import a_request
from specinfer.token_tree import ROOT
from specinfer.verify import draws_with_replacement

TOKENS_A_STEP = (2.3, 3.2)  # sampled and greedy, the paper's Table 2 at width 3
TEMPERATURES = (0.0, 0.7)
PAGE = 16
PARTS = ("draft", "plan", "forward", "verify", "commit")


class Replayed(Speculator):
    """Keeps as many nodes of each tree as a script says, whatever the LLM thinks of them."""

    script: Iterator[int] | None = None

    def _verified(self, jobs: Sequence[Job], rows: torch.Tensor) -> list[Outcome]:
        outcomes = super()._verified(jobs, rows)
        if self.script is None:
            return outcomes
        pairs = zip(jobs, outcomes, strict=True)
        return [self._kept(*pair, self.script) for pair in pairs]

    def _kept(self, job: Job, outcome: Outcome, script: Iterator[int]) -> Outcome:
        if job.tree is None or len(job.tree) == 1:
            return outcome
        node, path = ROOT, list[int]()
        for _ in range(next(script)):
            if not job.tree.draws[node]:
                break
            node = job.tree.draws[node][0].child
            path.append(node)
        tokens = [*(job.tree.tokens[node] for node in path), outcome.tokens[-1]]
        return Outcome(path, tokens)


@dataclass(slots=True)
class Parts:
    """Seconds by part of a step; the device is waited for at both ends of each."""

    rig: Rig
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            wait(self.rig)
            started = time.perf_counter()
            result = call(*args, **kwargs)
            wait(self.rig)
            self.seconds[part] += time.perf_counter() - started
            return result

        return instead


@dataclass(slots=True)
class Bench:
    """Models made once; every measurement gets caches and a scheduler of its own."""

    rig: Rig
    llm: CausalLM
    ssm: CausalLM

    @classmethod
    def of(cls, rig: Rig) -> "Bench":
        return cls(rig, _random(rig, rig.llm, 0), _random(rig, rig.ssm, 1))

    def let_go(self) -> None:
        """Give the memory of former caches and graphs back."""
        self.llm.graphs = self.ssm.graphs = None
        gc.collect()
        if not self.rig.dry:
            torch.cuda.empty_cache()

    def scheduler(self, batch: int, room: int, *, trees: bool, graphs: bool) -> Scheduler:
        cache = self._cache(self.llm, batch, room, graphs)
        drafters = [self._expansion(batch, room, graphs)] if trees else []
        pool = Pool(drafters)
        speculator = Replayed(self.llm, cache, pool, "auto")
        nodes = self.rig.tree.nodes if trees else 0
        return Scheduler(
            speculator,
            max_batch=batch,
            prefill_rows=512,
            queue_limit=batch,
            tree_rows=nodes,
            drawn=trees,
        )

    def _expansion(self, batch: int, room: int, graphs: bool) -> Expansion:
        cache = self._cache(self.ssm, batch, room, graphs)
        planner = Planner(cut_short(self.rig.tree), Profile(), ssm=None, llm=None)  # always whole
        return Expansion(
            self.ssm,
            cache,
            planner,
            vocab=self.llm.vocab,
            prefill_rows=512,
            replacement=draws_with_replacement("auto"),
        )

    def _cache(self, model: CausalLM, batch: int, room: int, graphs: bool) -> KVCache:
        tokens = batch * (self.rig.prompt + room + self.rig.tree.nodes + PAGE)
        cache = model.new_cache(tokens=tokens, page_size=PAGE)
        buckets = Buckets.up_to(segments=batch, pages=cache.pages, page_size=PAGE)
        capture = _eagerly if self.rig.dry else CudaCapture()
        model.graphs = Graphs(model, cache, buckets, capture) if graphs else None
        return cache


def check_engine(rig: Rig) -> int:
    """Small models in float32 must say the same in every way of running them."""
    small = {**rig.ssm, "num_hidden_layers": 2}
    exact = Bench(rig, _random(rig, small, 2, torch.float32), _random(rig, small, 3, torch.float32))
    plainly = partial(_answers, exact, trees=False, graphs=False)
    greedy = [_answers(exact, 0.0, trees=t, graphs=g) for t in (False, True) for g in (False, True)]
    failures = _told("greedy tokens: plain, trees, graphs, both", greedy, plainly(0.0))
    for trees in (False, True):
        with _walked_on_the_host():
            want = _answers(exact, 0.7, trees=trees, graphs=False)
        got = [_answers(exact, 0.7, trees=trees, graphs=graphs) for graphs in (False, True)]
        what = "with trees" if trees else "plain"
        failures += _told(f"sampled tokens, {what}: kernels as the host's walks", got, want)
    return failures


def _told(what: str, got: Sequence[object], want: object) -> int:
    failures = sum(answer != want for answer in got)
    print(f"check {'FAILS' if failures else 'ok':5} {what}")
    return failures


def _answers(exact: Bench, temperature: float, *, trees: bool, graphs: bool) -> list[list[int]]:
    scheduler = exact.scheduler(2, 16, trees=trees, graphs=graphs)
    asked = [_request(exact.rig, seed, exact.rig.answer, temperature) for seed in range(2)]
    _finish(scheduler, asked)
    return [request.tokens for request in asked]


@contextmanager
def _walked_on_the_host() -> Iterator[None]:
    """Have sampled requests drafted for and verified one by one, as a CPU does."""
    with (
        patch("specinfer.speculate.samples_together", lambda device: False),
        patch("specinfer.draft.growth.samples_together", lambda device: False),
    ):
        yield


def measure_steps(rig: Rig, bench: Bench, until: Until) -> int:
    """Print where the time of a step goes, without and with CUDA graphs; return the failures."""
    print(f"\nmilliseconds of a step with trees {rig.tree}, prompts of {rig.prompt} tokens")
    print(f"    B temp graphs {' '.join(f'{part:>8}' for part in PARTS)}     rest    total")

    def line(batch: int, temperature: float, graphs: bool) -> None:
        figures = _step(rig, bench, batch, temperature, graphs)
        print(f"{batch:5} {temperature:4} {'on' if graphs else 'off':6} {figures}")

    # With graphs first: it is what serves.
    ways = [*((temperature, True) for temperature in TEMPERATURES), (TEMPERATURES[0], False)]
    cases = [(batch, *way) for batch in rig.batches for way in ways]
    return _each(rig, bench, until, "steps", cases, line)


def _each(
    rig: Rig,
    bench: Bench,
    until: Until,
    what: str,
    cases: Sequence[tuple[Any, ...]],
    line: Callable[..., None],
) -> int:
    """Print a line for each case, whose batch comes first, that time and memory allow."""
    failures = 0
    for begun, case in enumerate(cases):
        if until.leaves_out(what, begun, len(cases)):
            break
        bench.let_go()
        wanted = _wanted(rig, case[0])
        if not rig.dry and wanted > 0.7 * torch.cuda.mem_get_info()[0]:
            print(f"{case[0]:5} left out: {wanted >> 20} MiB of keys and values")
            continue
        failures += attempt(f"{what} {case}", partial(line, *case))
    return failures


def _step(rig: Rig, bench: Bench, batch: int, temperature: float, graphs: bool) -> str:
    scheduler = _prefilled(rig, bench, batch, temperature, trees=True, graphs=graphs, replayed=2.3)
    # What is timed is put in its place's stead, which types have no word for.
    speculator: Any = scheduler._speculator
    module: Any = specinfer.speculate
    llm: Any = bench.llm
    parts, plan, commit, forward = Parts(rig), module.plan, speculator.cache.commit, llm.forward
    module.plan = parts.timed("plan", plan)
    speculator.draft = parts.timed("draft", speculator.draft)
    speculator._verified = parts.timed("verify", speculator._verified)
    speculator.cache.commit = parts.timed("commit", commit)
    llm.forward = parts.timed("forward", forward)
    try:
        seconds = _steps(rig, scheduler)
    finally:
        module.plan, llm.forward = plan, forward
    spent = [parts.seconds[part] for part in PARTS]
    figures = [*spent, seconds - sum(spent), seconds]
    return " ".join(f"{figure * 1e3 / rig.steps:8.2f}" for figure in figures)


def measure_speed(rig: Rig, bench: Bench, until: Until) -> int:
    """Print tokens a second, plain and with trees of which a given share is accepted."""
    columns = " ".join(f"trees at {mean}" for mean in TOKENS_A_STEP)
    print("\ntokens a second with CUDA graphs; trees keep a replayed number of tokens a step")
    print(f"    B temp      plain {columns}   ratios   tokens a step that pay")

    def line(batch: int, temperature: float) -> None:
        plain, one = _speed(rig, bench, batch, temperature, None)
        speeds = [_speed(rig, bench, batch, temperature, mean) for mean in TOKENS_A_STEP]
        ratios = " ".join(f"{speed / plain:.2f}" for speed, _ in speeds)
        figures = " ".join(f"{speed:12.0f}" for speed, _ in speeds)
        print(
            f"{batch:5} {temperature:4} {plain:10.0f} {figures} {ratios:>8}   "
            f"{speeds[0][1] / one:.2f}"
        )

    cases = [(batch, temperature) for batch in rig.batches for temperature in TEMPERATURES]
    return _each(rig, bench, until, "speeds", cases, line)


def _speed(
    rig: Rig, bench: Bench, batch: int, temperature: float, mean: float | None
) -> tuple[float, float]:
    """Return tokens a second and seconds a step."""
    trees = mean is not None
    scheduler = _prefilled(
        rig, bench, batch, temperature, trees=trees, graphs=True, replayed=mean or 1.0
    )
    asked = [entry.request for entry in scheduler._running]
    before = sum(len(request.tokens) for request in asked)
    seconds = _steps(rig, scheduler)
    return (sum(len(r.tokens) for r in asked) - before) / seconds, seconds / rig.steps


def _prefilled(
    rig: Rig,
    bench: Bench,
    batch: int,
    temperature: float,
    *,
    trees: bool,
    graphs: bool,
    replayed: float,
) -> Scheduler:
    """Return a scheduler whose requests have read their prompts and taken the first steps."""
    room = (2 * rig.steps + batch + 2) * (1 + len(rig.tree.widths))
    scheduler = bench.scheduler(batch, room, trees=trees, graphs=graphs)
    speculator = scheduler._speculator
    assert isinstance(speculator, Replayed)
    speculator.script = accepted(replayed, len(rig.tree.widths))
    for seed in range(batch):
        scheduler.add(_request(rig, seed, room, temperature))
    while any(not entry.request.emitted for entry in scheduler._running) or scheduler.queued:
        scheduler.step()
    for _ in range(rig.steps):
        scheduler.step()
    return scheduler


def _steps(rig: Rig, scheduler: Scheduler) -> float:
    """Return the seconds of the timed steps."""
    wait(rig)
    started = time.perf_counter()
    for _ in range(rig.steps):
        scheduler.step()
    wait(rig)
    return time.perf_counter() - started


def accepted(mean: float, depth: int) -> Iterator[int]:
    """Yield accepted nodes whose tokens a step, the LLM's own included, have a mean."""
    low, high = 0.0, 1.0
    for _ in range(50):
        chance = (low + high) / 2
        if 1 + sum(chance**d for d in range(1, depth + 1)) < mean:
            low = chance
        else:
            high = chance
    rng = random.Random(0)
    while True:
        count = 0
        while count < depth and rng.random() < chance:
            count += 1
        yield count


def _finish(scheduler: Scheduler, asked: list[Request]) -> None:
    for request in asked:
        scheduler.add(request)
    while scheduler.busy:
        scheduler.step()


def _request(rig: Rig, seed: int, room: int, temperature: float) -> Request:
    rng = random.Random(seed)
    tokens = [rng.randrange(1, rig.llm["vocab_size"]) for _ in range(rig.prompt)]
    request = a_request(tokens, room)
    request.params = replace(request.params, temperature=temperature)
    request.choices = SeededChoices(seed)
    return request


def _wanted(rig: Rig, batch: int) -> int:
    """Return the bytes of the LLM's keys and values that a batch fills."""
    room = rig.prompt + (2 * rig.steps + batch + 2) * (1 + len(rig.tree.widths))
    token = 2 * rig.llm["num_hidden_layers"] * rig.llm["hidden_size"] * rig.dtype.itemsize
    return batch * room * token


def no_room(rig: Rig) -> str | None:
    """Say why the LLM's weights do not fit the device, if so."""
    if rig.dry:
        return None
    hidden, inner = rig.llm["hidden_size"], rig.llm["intermediate_size"]
    layer = 4 * hidden * hidden + 3 * hidden * inner
    weights = rig.llm["num_hidden_layers"] * layer + 2 * rig.llm["vocab_size"] * hidden
    wanted, free = weights * rig.dtype.itemsize, torch.cuda.mem_get_info()[0]
    if 1.1 * wanted < free:
        return None
    return f"weights of {wanted >> 20} MiB do not fit the {free >> 20} MiB that are free"


def _random(
    rig: Rig, shape: dict[str, Any], seed: int, dtype: torch.dtype | None = None
) -> CausalLM:
    torch.manual_seed(seed)
    auto: Any = AutoModelForCausalLM
    with torch.device(rig.device):
        model = auto.from_config(
            LlamaConfig(**shape),
            dtype=dtype or rig.dtype,
            attn_implementation=tree_attention_name(),
        )
    return CausalLM(model, f"random {shape['hidden_size']}")


def _eagerly(run: Run) -> Run:
    run()
    return run
