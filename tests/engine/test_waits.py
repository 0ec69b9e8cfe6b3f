"""How often a step waits for the device: each time, a GPU's queue of work runs empty."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specinfer.config import EngineConfig, TreeShape
from specinfer.cost_model import FlatCost
from specinfer.engine import Engine
from specinfer.grammar.spec import Grammar
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.testing.card import Card
from specinfer.testing.toy import a_request, write_tiny_recurrent

PLAIN = SamplingParams()
MIXED = [
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.0, top_k=9, top_p=0.9, min_p=0.01),
    PLAIN,
    SamplingParams(temperature=1.0, repetition_penalty=1.3, logit_bias={3: 1.0}),
    SamplingParams(frequency_penalty=0.5, min_new_tokens=40, stop_token_ids=(5,)),
]
KINDS = {"greedy": [PLAIN], "greedy ones": [PLAIN] * 5, "sampled": MIXED[:1], "mixed": MIXED}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    monkeypatch.setenv("SPECINFER_KERNELS", "reference")
    with Card() as card:
        yield card


@pytest.fixture(scope="module")
def ssms(tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("waits") / "recurrent"
    known = torch.arange(1, 97, 2)
    return {"layers": tiny["ssm"], "recurrent": write_tiny_recurrent(folder, tiny["llama"], known)}


def scheduled(
    llm: Path, ssm: Path | None, kinds: list[SamplingParams], depth: int = 3
) -> Scheduler:
    """Return a scheduler whose requests have taken two steps: a recurrent SSM drafts from then."""
    config = EngineConfig(
        model=llm,
        ssms=(ssm,) if ssm else (),
        tree=TreeShape((2,) * depth),
        dtype="float32",
        page_size=4,
        device="cuda",
        max_batch=5,
        cuda_graphs="off",
        adaptive=False,
    )
    engine = Engine.load(config)
    scheduler = engine._scheduler
    engine.close()  # its thread; the steps are taken here
    for i, params in enumerate(kinds):
        request: Request = a_request([1 + i, 2, 3, 1 + i, 2, 3, 1 + i, 2])
        request.params = replace(params, max_new_tokens=50, ignore_eos=True)
        scheduler.add(request)
    scheduler.step()
    scheduler.step()
    return scheduler


def waits(card: Card, scheduler: Scheduler) -> Counter[str]:
    """Return how a step's host waits."""
    card.count()
    scheduler.step()
    return card.count()


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("ssm", ["layers", "recurrent"])
def test_a_step_waits_for_its_verdicts_and_for_each_level_drafted(
    tiny: dict[str, Path], ssms: dict[str, Path], card: Card, ssm: str, kinds: str
) -> None:
    """Whatever the batch; it was once for every token sent, and every penalty."""
    for depth in (1, 3):
        scheduler = scheduled(tiny["llama"], ssms[ssm], KINDS[kinds], depth)
        assert waits(card, scheduler) == Counter(read=1 + depth)


@pytest.mark.parametrize("kinds", KINDS)
def test_without_an_ssm_a_step_waits_once(tiny: dict[str, Path], card: Card, kinds: str) -> None:
    assert waits(card, scheduled(tiny["llama"], None, KINDS[kinds])) == Counter(read=1)


def test_log_probabilities_of_all_requests_come_at_once(tiny: dict[str, Path], card: Card) -> None:
    asked = [replace(params, logprobs=i) for i, params in enumerate(MIXED)]
    assert waits(card, scheduled(tiny["llama"], tiny["ssm"], asked)) == Counter(read=1 + 3 + 1)


def test_a_level_is_timed_without_another_wait(tiny: dict[str, Path], card: Card) -> None:
    """The host used to wait for a pass, and launched only then what chooses the children."""
    scheduler = scheduled(tiny["llama"], tiny["ssm"], [PLAIN] * 2)
    (drafter,) = scheduler._speculator.pool.drafters
    drafter.planner.ssm = FlatCost(1.0)
    assert waits(card, scheduler) == Counter(read=1 + 3)


def test_a_grammar_is_sent_without_waiting(tiny: dict[str, Path], card: Card) -> None:
    """Its nodes are looked at one by one, since no mask is made for those beside the path."""
    params = SamplingParams(grammar=Grammar("regex", "[a-f]{40}"))
    scheduler = scheduled(tiny["llama"], None, [params])
    found = waits(card, scheduler)
    assert found["send"] == 0
    assert found["read"] >= 1


def test_what_typical_p_waits_for_is_counted(tiny: dict[str, Path], card: Card) -> None:
    """No kernel knows it: the walk is the host's, and looks at the laws as it goes."""
    scheduler = scheduled(
        tiny["llama"], tiny["ssm"], [SamplingParams(temperature=1, typical_p=0.9)]
    )
    assert waits(card, scheduler).total() > 20
