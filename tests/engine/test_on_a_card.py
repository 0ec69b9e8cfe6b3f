"""The engine on a pretend card: what it answers on a CPU, from captured graphs, without a mix-up.

Kernels are the reference's; interpreted_on_a_card.py has Triton's own.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.grammar.spec import Grammar
from specinfer.testing.ask import Asker
from specinfer.testing.card import Card
from specinfer.testing.toy import write_tiny_recurrent

PROMPTS = [[1 + (7 * i + j * (i + 3)) % 96 for j in range(3 + 9 * i)] for i in range(6)]
ROOM = {"max_new_tokens": 8, "ignore_eos": True}
SAMPLED = ROOM | {"temperature": 0.9, "seed": 5}
PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.1}
# One batch of everything that a request may ask for.
REQUESTS: list[dict[str, Any]] = [
    ROOM,
    SAMPLED,
    SAMPLED | {"top_k": 20, "top_p": 0.9, "min_p": 0.01},
    SAMPLED | {"typical_p": 0.8},
    ROOM | PENALTIES | {"logit_bias": {5: 2.0, 7: -3.0}},
    SAMPLED | PENALTIES | {"logit_bias": {5: 2.0}},
    ROOM | {"logprobs": 3},
    SAMPLED | {"logprobs": 0},
    {"max_new_tokens": 8, "min_new_tokens": 5, "stop_token_ids": (3, 4)},
    {"max_new_tokens": 8, "min_new_tokens": 5, "temperature": 1.0, "seed": 2},
    {"max_new_tokens": 8, "grammar": Grammar("regex", "[a-f]{12}")},
    SAMPLED | {"grammar": Grammar("regex", "[a-f]{12}")},
]


@pytest.fixture(autouse=True)
def by_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECINFER_KERNELS", "reference")


@pytest.fixture(scope="module")
def recurrent(tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card") / "recurrent"
    return write_tiny_recurrent(folder, tiny["llama"], torch.arange(1, 97, 2))


@pytest.fixture
def by_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a CPU draft as a GPU does: step.c rounds otherwise."""
    monkeypatch.setattr("specinfer.ssm.recurrent.step_library", lambda *_: (None, "not asked for"))


def answers(
    tiny: dict[str, Path], asked: list[tuple[list[int], dict[str, Any]]], **settings: Any
) -> list[tuple[list[int], str | None, list[Any]]]:
    room = {"max_batch": 4, "cache_tokens": 512, "page_size": 4}
    config = EngineConfig(
        model=tiny["llama"], **{"dtype": "float32", "adaptive": False, **room, **settings}
    )
    engine = Engine.load(config)
    asker = Asker(engine)
    waiting = [asker.submit(prompt, **params)[1] for prompt, params in asked]
    found = [asker.gather(deltas) for deltas in waiting]
    engine.close()
    assert engine.cache.used == 0
    wants_graphs = settings.get("device") == "cuda" and settings.get("offload") is None
    assert (engine._llm.graphs is not None) == wants_graphs
    return [(answer.tokens, answer.last.error, answer.last.logprobs) for answer in found]


def agree(
    tiny: dict[str, Path], asked: list[tuple[list[int], dict[str, Any]]], **settings: Any
) -> Card:
    """Ask a CPU's engine and a card's; return the card."""
    resident = {name: value for name, value in settings.items() if name != "offload"}
    expected = answers(tiny, asked, device="cpu", **resident)
    with Card() as card:
        found = answers(tiny, asked, device="cuda", **settings)
    for (tokens, error, logprobs), (want, _, wanted) in zip(found, expected, strict=True):
        assert error is None
        assert tokens == want
        assert [one.token for one in logprobs or ()] == [one.token for one in wanted or ()]
    return card


def everything() -> list[tuple[list[int], dict[str, Any]]]:
    return [(PROMPTS[i % len(PROMPTS)], params) for i, params in enumerate(REQUESTS)]


def greedy(count: int) -> list[tuple[list[int], dict[str, Any]]]:
    return [(prompt, ROOM) for prompt in PROMPTS[:count]]


@pytest.mark.usefixtures("by_operators")
@pytest.mark.parametrize("drafters", ["none", "ssm", "recurrent", "ssm recurrent"])
def test_every_kind_of_request_is_answered_as_on_a_cpu(
    tiny: dict[str, Path], recurrent: Path, drafters: str
) -> None:
    folders = {**tiny, "recurrent": recurrent}
    ssms = tuple(folders[name] for name in drafters.split() if name != "none")
    agree(tiny, everything(), ssms=ssms)
