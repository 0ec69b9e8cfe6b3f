"""The default model on real prompts: every tree gives the tokens of plain decoding, in float32."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.testing.ask import Asker

pytestmark = pytest.mark.slow

PROMPTS = Path(__file__).parents[2] / "benchmarks" / "prompts"
TOKENS = 16


@pytest.fixture(scope="module")
def model() -> Path:
    from specinfer.model_store import resolve_model

    return resolve_model("default")


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    files = (PROMPTS / f"{name}.jsonl" for name in ("chat", "code"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [json.loads(line)["prompt"] for line in lines[::3] + lines[1::3]]


@pytest.fixture(scope="module")
def reference(model: Path, prompts: list[str]) -> list[list[int]]:
    """What transformers itself generates, greedily and one token a pass."""
    llm = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    engine = Engine.load(EngineConfig(model=model, dtype="float32", lookup=False))
    answers = []
    for prompt in prompts:
        ids = torch.tensor([engine.encode_chat([{"role": "user", "content": prompt}])])
        out = llm.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False
        )
        answers.append(_until_end(out[0, ids.shape[1] :].tolist(), engine))
    engine.close()
    return answers


def _until_end(tokens: list[int], engine: Engine) -> list[int]:
    ends = [place for place, token in enumerate(tokens) if token in engine.end_tokens]
    return tokens[: ends[0]] if ends else tokens


@pytest.mark.parametrize(
    "settings",
    [
        {"lookup": False},
        {"adaptive": False, "lookup_depth": 8, "lookup_nodes": 12},
        {"adaptive": False, "lookup_depth": 1, "lookup_nodes": 4},
        {"adaptive": False, "lookup_depth": 3, "lookup_nodes": 24},
        {"adaptive": True},
    ],
    ids=["plain", "deep", "flat", "wide", "adaptive"],
)
def test_greedy_output_is_transformers_own(model, prompts, reference, settings) -> None:
    assert len(prompts) >= 20
    engine = Engine.load(EngineConfig(model=model, dtype="float32", max_batch=4, **settings))
    asker = Asker(engine)
    waiting = [
        asker.submit(
            engine.encode_chat([{"role": "user", "content": prompt}]), max_new_tokens=TOKENS
        )[1]
        for prompt in prompts
    ]
    answers = [asker.gather(deltas).tokens for deltas in waiting]
    engine.close()
    assert answers == reference


def test_an_ssm_folder_expands_trees_for_the_real_model(model, prompts) -> None:
    """The LLM drafts for itself: every level of <1,1,3,1> must stand."""
    config = EngineConfig(
        model=model,
        ssms=(model,),
        tree=TreeShape((1, 1, 3, 1)),
        dtype="float32",
        lookup=False,
        adaptive=False,
    )
    engine = Engine.load(config)
    answer = Asker(engine)(engine.encode(prompts[0]), max_new_tokens=15, ignore_eos=True)
    engine.close()
    assert answer.last.stats.tokens_per_step == 5
