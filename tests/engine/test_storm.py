"""A storm of mixed requests: nothing leaks, nobody starves, and every answer is as if alone.

The scheduler is stepped by hand, so the storm is the same in every run.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from specinfer.assembly import assemble
from specinfer.choices import SeededChoices
from specinfer.config import EngineConfig, TreeShape
from specinfer.draft.expansion import Expansion
from specinfer.grammar.compiler import Grammars
from specinfer.grammar.spec import Grammar
from specinfer.lean import load_llm
from specinfer.model_store import resolve_model
from specinfer.request import Delta, Request
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.text import TextStream
from specinfer.tokenizer import Tokenizer

GRAMMARS = (
    Grammar.json_object(),
    Grammar.choice(["left", "leftover", "right"]),
    Grammar("regex", "(ab?c){1,9}[0-9]{2}"),
)
Case = tuple[tuple[int, ...], SamplingParams]


@dataclass(eq=False)
class Watched:
    """A request of the storm: what came of it, and when in steps."""

    case: Case
    arrived: int
    leaves: int | None  # step after which the caller is gone
    broken: bool  # whether its receiver fails
    tokens: list[int] = field(default_factory=list)
    first: int | None = None
    last: Delta | None = None


class Bench:
    """A scheduler over real parts, stepped by hand."""

    def __init__(self, config: EngineConfig) -> None:
        self.tokenizer = Tokenizer(config.model)
        llm = load_llm(config.model, config.dtype, torch.device("cpu"), config.quantization)
        self.speculator = assemble(config, llm, self.tokenizer)
        self.limit = min(llm.max_context, config.cache_tokens)
        self.grammars = Grammars(self.tokenizer.definition, vocab=llm.vocab, eos=self.tokenizer.eos)
        self.step = 0
        self.scheduler = Scheduler(
            self.speculator,
            max_batch=config.max_batch,
            prefill_rows=config.prefill_rows,
            queue_limit=config.queue_limit,
            tree_rows=config.most_nodes,
            drawn=bool(config.ssms),
        )

    def submit(self, watched: Watched) -> Request:
        def sink(delta: Delta) -> None:
            if watched.broken:
                raise RuntimeError("the receiver is gone")
            assert watched.last is None, "a delta after the last"
            if watched.first is None and delta.finish_reason != "cancelled":
                watched.first = self.step
            watched.tokens += delta.tokens
            watched.last = delta if delta.finish_reason else None

        prompt, params = watched.case
        request = Request(
            prompt=prompt,
            params=params,
            sink=sink,
            choices=SeededChoices(params.seed),
            text=TextStream(self.tokenizer.decode, params.stop),
            eos=self.tokenizer.eos,
            limit=self.limit,
            constraint=params.grammar and self.grammars.constraint(params.grammar),
        )
        self.scheduler.add(request)
        return request

    def alone(self, case: Case) -> list[int]:
        watched = Watched(case, 0, None, broken=False)
        self.submit(watched)
        while self.scheduler.busy:
            self.scheduler.step()
        assert watched.last is not None
        return watched.tokens

    def caches(self) -> Iterator[object]:
        yield self.speculator.cache
        for drafter in self.speculator.pool.drafters:
            if isinstance(drafter, Expansion):
                yield drafter.cache


def storm(bench: Bench, cases: list[Case], rng: random.Random, count: int) -> list[Watched]:
    """Let requests come in bursts and leave as they please; return all once none is left."""
    arriving = deque(
        Watched(
            case=rng.choice(cases),
            arrived=0,
            leaves=rng.randrange(12) if rng.random() < 0.2 else None,
            broken=rng.random() < 0.05,
        )
        for _ in range(count)
    )
    everyone, leaving = list(arriving), list[tuple[int, Request]]()
    while arriving or bench.scheduler.busy:
        for _ in range(rng.choice((0, 0, 1, 2, 9))):
            if arriving:
                watched = arriving.popleft()
                watched.arrived = bench.step
                request = bench.submit(watched)
                if watched.leaves is not None:
                    leaving.append((bench.step + watched.leaves, request))
        for when, request in leaving:
            request.cancelled |= when == bench.step
        bench.scheduler.step()
        bench.step += 1
        assert bench.step < 100 * count, "the storm does not end"
    return everyone


def assert_nothing_is_left(bench: Bench) -> None:
    """Known pages may stay, but unheld, so that the whole cache can be had."""
    for cache in bench.caches():
        assert cache.used == 0
        assert not any(cache._holders)
        whole = cache.open([])
        cache.reserve(whole, cache.pages * cache.page_size)
        cache.release(whole)
    pool = bench.speculator.pool
    for drafter in (pool, *pool.drafters, pool._acceptance):
        names = getattr(drafter, "__slots__", None) or vars(drafter)
        for name in names:
            kept = getattr(drafter, name)
            if isinstance(kept, dict):
                assert not any(isinstance(key, Request) for key in kept), (drafter, name)


def assert_nobody_starved(everyone: list[Watched], batch: int) -> None:
    """First come, first served, give or take a batch; whoever stays is served to the end."""
    served = [one for one in everyone if one.first is not None]
    for early, late in zip(served, served[batch:], strict=False):
        assert early.first <= late.first  # type: ignore[operator]
    for one in everyone:
        if one.leaves is None and not one.broken:
            assert one.last is not None
            assert one.last.finish_reason in {"length", "eos", "stop"}


def assert_as_if_alone(bench: Bench, everyone: list[Watched]) -> None:
    """Ask for each case once more, with nobody else there."""
    alone: dict[int, list[int]] = {}
    for one in everyone:
        if id(one.case) not in alone:
            alone[id(one.case)] = bench.alone(one.case)
        expected = alone[id(one.case)]
        assert one.tokens == expected[: len(one.tokens)]
        if one.leaves is None and not one.broken:
            assert one.tokens == expected


def tiny_cases(rng: random.Random, count: int) -> list[Case]:
    """Draw requests with every sampling control there is; a quarter of them plainly greedy."""
    shared = tuple(rng.randrange(1, 97) for _ in range(20))

    def sometimes(value: Callable[[], object], plain: object) -> object:
        return value() if rng.random() < 0.3 else plain

    cases = []
    for number in range(count):
        length = rng.choice((1, 3, 9, 17, 40))
        prompt = tuple(rng.choice((shared, [rng.randrange(1, 97)] * 99))[:length])
        controls: dict[str, object] = {}
        if number % 4:
            controls = {
                "temperature": rng.choice((0.0, 0.0, 0.7, 1.3)),
                "repetition_penalty": sometimes(lambda: rng.uniform(0.8, 1.5), 1.0),
                "frequency_penalty": sometimes(lambda: rng.uniform(-1, 1), 0.0),
                "presence_penalty": sometimes(lambda: rng.uniform(-1, 1), 0.0),
                "top_k": sometimes(lambda: rng.randrange(1, 50), 0),
                "top_p": sometimes(lambda: rng.uniform(0.3, 1), 1.0),
                "min_p": sometimes(lambda: rng.uniform(0, 0.2), 0.0),
                "logit_bias": sometimes(lambda: {rng.randrange(97): rng.uniform(-9, 9)}, {}),
                "stop": sometimes(lambda: (chr(rng.randrange(33, 120)),), ()),
                "stop_token_ids": sometimes(lambda: (rng.randrange(97),), ()),
                "ignore_eos": sometimes(lambda: True, False),
                "min_new_tokens": sometimes(lambda: 4, 0),
                "logprobs": sometimes(lambda: 2, None),
                "grammar": sometimes(lambda: rng.choice(GRAMMARS), None),
            }
        cases.append(
            (prompt, SamplingParams(max_new_tokens=rng.randrange(4, 20), seed=number, **controls))
        )
    return cases


@pytest.mark.parametrize("adaptive", [False, True])
def test_500_mixed_requests_are_answered_as_if_each_were_alone(
    tiny: dict[str, Path], adaptive: bool
) -> None:
    """The cache holds a few of them at a time, so they step back as well."""
    config = EngineConfig(
        model=tiny["llama"],
        ssms=(tiny["ssm"],),
        tree=TreeShape((2, 1)),
        lookup_nodes=4,
        dtype="float32",
        adaptive=adaptive,
        max_batch=16,
        cache_tokens=256,
        page_size=4,
        prefill_rows=24,
        queue_limit=500,
    )
    rng = random.Random(0)
    cases = tiny_cases(rng, 60)
    bench = Bench(config)
    everyone = storm(bench, cases, rng, 500 if not adaptive else 120)
    assert_nothing_is_left(bench)
    assert_nobody_starved(everyone, config.max_batch)
    assert_as_if_alone(Bench(config), everyone)


@pytest.mark.slow
def test_a_smaller_storm_on_the_default_model() -> None:
    config = EngineConfig(
        model=resolve_model("default"), dtype="float32", max_batch=6, cache_tokens=512
    )
    rng = random.Random(1)
    tokenizer = Tokenizer(config.model)
    texts = ("Name three colours.", "What is 2+2?", "Write a haiku about trees.", "Hello! " * 9)
    cases = []
    for number in range(8):
        prompt = tokenizer.encode_chat([{"role": "user", "content": texts[number // 2]}])
        params = SamplingParams(
            max_new_tokens=6 + number,
            temperature=(0.0, 0.8)[number % 2],
            repetition_penalty=1.0 + number % 3 / 10,
            top_p=0.9,
            seed=number,
            stop=("e ",) if number == 2 else (),
        )
        cases.append((tuple(prompt), params))
    bench = Bench(config)
    everyone = storm(bench, cases, rng, 30)
    assert_nothing_is_left(bench)
    assert_nobody_starved(everyone, config.max_batch)
    assert_as_if_alone(bench, everyone)
