"""The engine on a pretend card: what it answers on a CPU, from captured graphs, without a mix-up.

Kernels are the reference's; tests/kernels has Triton's own.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specinfer.attend import tree_attention_name
from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.errors import ConfigError
from specinfer.grammar.spec import Grammar
from specinfer.graphs import Buckets, CudaCapture, Graphs
from specinfer.llm import CausalLM
from specinfer.testing.ask import Asker
from specinfer.testing.card import Card
from specinfer.testing.toy import write_tiny_recurrent
from specinfer.tree_attention import ForwardPlan, Segment, plan
from specinfer.waits import what_waits

GQA = {"num_key_value_heads": 2, "intermediate_size": 96}
KINDS = {
    "llama": GQA,
    "mistral": GQA,
    "qwen2": GQA,
    "qwen3": GQA | {"head_dim": 16},
    "gemma2": GQA | {"head_dim": 16},
    "gemma3_text": GQA | {"head_dim": 16},
    "phi3": GQA,
    "mixtral": GQA | {"num_local_experts": 4},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
}

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
@pytest.mark.parametrize(
    "drafters",
    [
        "none",
        "ssm recurrent",
        pytest.param("ssm", marks=pytest.mark.slow),
        pytest.param("recurrent", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_request_is_answered_as_on_a_cpu(
    tiny: dict[str, Path], recurrent: Path, drafters: str
) -> None:
    folders = {**tiny, "recurrent": recurrent}
    ssms = tuple(folders[name] for name in drafters.split() if name != "none")
    agree(tiny, everything(), ssms=ssms)


@pytest.mark.parametrize(
    "settings",
    [
        {"quantization": "int8"},
        {"quantization": "int8_weight_only"},
        {"quantization": "int4_weight_only", "dtype": "auto"},
    ],
    ids=lambda settings: settings["quantization"],
)
def test_quantized_linears_are_captured_as_well(
    tiny: dict[str, Path], settings: dict[str, Any]
) -> None:
    agree(tiny, greedy(2), max_batch=2, **settings)


def test_a_driver_that_captures_nothing_is_told_and_done_without(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(self: object, run: object) -> None:
        raise RuntimeError("operation not permitted")

    monkeypatch.setattr(CudaCapture, "__call__", refuses)
    config = EngineConfig(model=tiny["llama"], device="cuda", cache_tokens=256, adaptive=False)
    with Card():
        engine = Engine.load(config)
        assert Asker(engine)([1, 2, 3], max_new_tokens=4).last.error is None
        engine.close()
        told = "llama could not be captured: operation not permitted"
        assert f"runs without CUDA graphs: {told}" in caplog.text
        with pytest.raises(ConfigError, match=f"cuda_graphs: on, but {told}"):
            Engine.load(replace(config, cuda_graphs="on"))


@pytest.mark.parametrize("kept", ["cpu", "disk"])
def test_layers_that_are_brought_in_are_there_in_time(tiny: dict[str, Path], kept: str) -> None:
    agree(tiny, greedy(3), offload=kept, ssms=(tiny["ssm"],))


def a_pass(kind: str, device: str) -> tuple[CausalLM, ForwardPlan]:
    """Return a random model of a class, and a tree for it."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind,
        vocab_size=97,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        pad_token_id=0,
        **KINDS[kind],
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation=tree_attention_name())
    llm = CausalLM(model.to(device), kind)
    cache = llm.new_cache(tokens=64, page_size=4)
    cache.reserve(sequence := cache.open([]), 3)
    return llm, plan(cache, [Segment(sequence, [5, 6, 7], [-1, 0, 0], [0, 2])])


@pytest.mark.parametrize("kind", KINDS)
def test_models_in_use_are_captured(kind: str) -> None:
    llm, laid_out = a_pass(kind, "cpu")
    expected = llm.forward(laid_out)
    with Card() as card:
        llm, laid_out = a_pass(kind, "cuda")
        card.count()
        assert torch.equal(llm.forward(laid_out).cpu(), expected)
        assert card.count() == Counter(read=1)
        assert what_waits(llm, laid_out.cache) == set()
        buckets = Buckets.up_to(segments=1, pages=16, page_size=4)
        llm.graphs = Graphs(llm, laid_out.cache, buckets, CudaCapture())
        for _ in range(2):
            torch.testing.assert_close(llm.forward(laid_out).cpu(), expected)
        assert len(llm.graphs) == 1


def test_short_of_pages_and_of_rows_the_answers_stay(tiny: dict[str, Path]) -> None:
    """Requests are preempted and read again; prompts come in chunks that no graph holds."""
    asked = [(prompt, ROOM | {"max_new_tokens": 24}) for prompt in PROMPTS[:4]]
    agree(tiny, asked, ssms=(tiny["ssm"],), cache_tokens=96, prefill_rows=16)


def test_a_known_beginning_is_not_read_again(tiny: dict[str, Path]) -> None:
    agree(tiny, [(PROMPTS[5], ROOM)] * 2, max_batch=1, ssms=(tiny["ssm"],))


def test_trees_adapt_to_what_a_card_takes(tiny: dict[str, Path], recurrent: Path) -> None:
    """Greedy answers do not depend on the trees that measured costs call for."""
    agree(tiny, greedy(3), ssms=(tiny["ssm"], recurrent), adaptive=True, tree="profiled")
