"""The pool that comes with the package: whole, small, described, and lossless with its LLM."""

import json

import pytest
from safetensors import safe_open

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.model_store import check_folder, resolve_model
from specinfer.model_store.pools import resolve_ssms
from specinfer.ssm import POOLS, WEIGHTS, pool_members
from specinfer.testing.ask import Asker

LLM = "smollm2-135m-instruct"


def test_it_is_whole_and_small() -> None:
    members = pool_members(POOLS / LLM)
    assert len(members) >= 2 and resolve_ssms([LLM]) == members
    assert sum(file.stat().st_size for file in (POOLS / LLM).rglob("*")) <= 20_000_000
    for member in members:
        assert check_folder(member, tokenizer=False) == member.resolve()  # what `serve` asks first
        with safe_open(member / WEIGHTS, "pt") as file:
            vocabulary = file.get_tensor("vocabulary")
            assert (vocabulary.diff() > 0).all() and int(vocabulary[-1]) < 49152


def test_its_card_tells_what_it_is() -> None:
    card = (POOLS / LLM / "README.md").read_text()
    for word in ("Apache-2.0", "specinfer train", "held out", "HumanEval", "steps"):
        assert word in card
    report = json.loads((POOLS / LLM / "report.json").read_text())
    assert f"{report['training_laws']:,}" in card


@pytest.mark.slow
def test_it_drafts_losslessly() -> None:
    model = resolve_model(LLM)
    answers, steps = [], 1.0
    for ssms in ((), resolve_ssms([LLM])):
        config = EngineConfig(
            model=model,
            ssms=ssms,
            lookup=False,
            adaptive=False,
            dtype="float32",
            tree=TreeShape((2, 1, 1)),
            cache_tokens=1024,
        )
        engine = Engine.load(config)
        ids = engine.encode_chat([{"role": "user", "content": "Write gcd(a, b) in Python."}])
        got = Asker(engine)(ids, max_new_tokens=40)
        engine.close()
        answers.append(got.tokens)
        assert got.last.stats is not None
        steps = got.last.stats.tokens_per_step
    assert answers[0] == answers[1]
    assert steps > 1.2
