"""The default model under grammars: valid JSON, whole characters, the answers of plain decoding."""

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.grammar.spec import Grammar
from specinfer.testing.ask import Asker

pytestmark = pytest.mark.slow

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 30},
        "date_of_birth": {"type": "string", "format": "date"},
        "occupation": {"enum": ["mathematician", "engineer", "physicist"]},
        "children": {"type": "integer", "minimum": 0, "maximum": 20},
    },
    "required": ["name", "date_of_birth", "occupation", "children"],
    "additionalProperties": False,
}
QUESTION = "Describe Ada Lovelace as JSON: name, date_of_birth, occupation, children."


@pytest.fixture(scope="module")
def model() -> Path:
    from specinfer.model_store import resolve_model

    return resolve_model("default")


@pytest.fixture(scope="module")
def trees(model: Path) -> Iterator[Asker]:
    engine = Engine.load(EngineConfig(model=model, dtype="float32", adaptive=False))
    yield Asker(engine)
    engine.close()


@pytest.fixture(scope="module")
def plain(model: Path) -> Iterator[Asker]:
    engine = Engine.load(EngineConfig(model=model, dtype="float32", lookup=False))
    yield Asker(engine)
    engine.close()


def test_schema_answers_validate_and_are_plain_decodings_own(trees: Asker, plain: Asker) -> None:
    prompt = plain.engine.encode_chat([{"role": "user", "content": QUESTION}])
    controls = [{"temperature": 0.0}, {"temperature": 1.0, "seed": 5}]
    params = [one | {"grammar": Grammar.json_schema(SCHEMA)} for one in controls]
    answers = [
        [asker.gather(deltas) for deltas in [asker.submit(prompt, **one)[1] for one in params]]
        for asker in (trees, plain)
    ]
    for ours, theirs in zip(*answers, strict=True):
        jsonschema.validate(
            json.loads(ours.text), SCHEMA, format_checker=jsonschema.FormatChecker()
        )
        assert ours.tokens == theirs.tokens
        assert ours.last.finish_reason == "eos"
        assert ours.last.stats.tokens_per_step > theirs.last.stats.tokens_per_step


def test_characters_of_several_tokens_come_out_whole(trees: Asker) -> None:
    words = ["naïve 🎉", "日本語", 'a "quoted"\nline']
    got = trees("The word is ", grammar=Grammar.choice(words))
    assert got.text in words
    only = trees("The word is ", grammar=Grammar("regex", "[🎉🎊]é"))
    assert only.text in ("🎉é", "🎊é")
    assert only.last.finish_reason == "eos"


def test_any_object_is_an_object(trees: Asker) -> None:
    prompt = trees.engine.encode_chat([{"role": "user", "content": "Give me a small JSON object."}])
    got = trees(prompt, max_new_tokens=40, grammar=Grammar.json_object())
    assert got.text.startswith("{")
    if got.last.finish_reason == "eos":
        assert isinstance(json.loads(got.text), dict)
