"""The whole engine on two ranks gives the tokens of one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.parallel.group import Group
from specinfer.parallel.sharded import ShardedLM
from specinfer.testing.ask import Asker

PROMPTS = [[5, 6, 7, 5, 6, 7, 5], list(range(20, 80)), [9, 9, 9], [31, 7, 31, 7, 31]]


@pytest.fixture(scope="module")
def config(tiny: dict[str, Path]) -> EngineConfig:
    return EngineConfig(
        model=tiny["llama"],
        ssms=(tiny["ssm"], tiny["recurrent"]),
        tree=TreeShape((2, 2, 1)),
        dtype="float32",
        adaptive=False,
        prefill_rows=32,
        cache_tokens=512,
    )


@pytest.fixture(scope="module")
def one(config: EngineConfig) -> Iterator[Asker]:
    engine = Engine.load(config)
    yield Asker(engine)
    engine.close()


@pytest.fixture(scope="module")
def two(config: EngineConfig, group: Group) -> Iterator[Asker]:
    group.tell(config)
    engine = Engine.over(ShardedLM.of(config, group), config)
    yield Asker(engine)
    engine.close()
    assert engine.cache.used == 0, "pages leaked"


def answers(asker: Asker, **params: object) -> list[list[int]]:
    waiting = [asker.submit(prompt, **params)[1] for prompt in PROMPTS]
    return [asker.gather(deltas).tokens for deltas in waiting]


def test_a_rank_holds_its_heads_only(one: Asker, two: Asker) -> None:
    whole, half = one.engine.cache.kv.shape, two.engine.cache.kv.shape
    assert half[3] * 2 == whole[3]


@pytest.mark.parametrize(
    "params",
    [
        {"max_new_tokens": 24},
        {"max_new_tokens": 24, "ignore_eos": True, "stop_token_ids": (40, 41, 42)},
        {"max_new_tokens": 12, "temperature": 0.9, "seed": 3},
    ],
    ids=["greedy", "stop", "sampled"],
)
def test_trees_on_two_ranks_give_the_tokens_of_one(one: Asker, two: Asker, params) -> None:
    assert answers(two, **params) == answers(one, **params)


def test_a_cancelled_request_leaves_the_others_right(one: Asker, two: Asker) -> None:
    handle, doomed = two.submit([3, 4], max_new_tokens=200, ignore_eos=True)
    kept = [two.submit(prompt, max_new_tokens=16)[1] for prompt in PROMPTS]
    doomed.get(timeout=60)
    handle.cancel()
    tokens = [two.gather(deltas).tokens for deltas in kept]
    assert two.gather(doomed).last.finish_reason == "cancelled"
    assert tokens == answers(one, max_new_tokens=16)


def test_logits_differ_by_rounding_alone(one: Asker, two: Asker) -> None:
    shown = [asker(PROMPTS[0], max_new_tokens=1, logprobs=3).last.logprobs for asker in (one, two)]
    ours, theirs = (torch.tensor([top for _, top in each[0].top]) for each in shown)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
