"""Constrained answers of a tiny engine: those of plain masked decoding, whatever is asked."""

import json
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from llguidance import LLMatcher, LLTokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from specinfer.errors import ParameterError
from specinfer.grammar import compiler
from specinfer.grammar.constraint import Constraint
from specinfer.grammar.spec import MAX_CHARACTERS, MAX_CHOICES, Grammar
from specinfer.sampling import SamplingParams
from specinfer.testing.automaton import Automaton

PROMPT = "abcabcabcabc"
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 999},
        "kind": {"enum": ["large", "larger", "small"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
    },
    "required": ["id", "kind", "tags"],
    "additionalProperties": False,
}
GRAMMARS = {
    "schema": Grammar.json_schema(SCHEMA),
    "regex": Grammar("regex", "(ab?c){2,9}[0-9]{3}"),
    "choice": Grammar.choice(["left", "leftover", "right"]),
    "lark": Grammar("ebnf", 'start: "<" start ">" | "x"'),
    "gbnf": Grammar("ebnf", 'root ::= "a" root "b" | "c"'),
}


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_greedy_answers_are_those_of_a_plain_masked_loop(ask, tiny, grammar) -> None:
    want = masked_loop(tiny["llama"], grammar, 60)
    for settings in ({"lookup": False}, {}, {"ssms": (tiny["ssm"],)}, {"adaptive": True}):
        got = ask(**settings)(PROMPT, max_new_tokens=60, grammar=grammar)
        assert (got.tokens, got.last.finish_reason) == want


def masked_loop(folder: Path, grammar: Grammar, limit: int) -> tuple[list[int], str]:
    """Decode with transformers' model and llguidance alone, a token a pass."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    known = LLTokenizer(tokenizer.backend_tokenizer.to_str(), n_vocab=97, eos_token=0)
    matcher = LLMatcher(known, compiler._rules(grammar))
    tokens, prompt = list[int](), tokenizer.encode(PROMPT)
    while len(tokens) < limit:
        with torch.inference_mode():
            row = model(torch.tensor([prompt + tokens])).logits[0, -1]
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        token = int(row.masked_fill(torch.from_numpy(bits[:97] == 0), -torch.inf).argmax())
        if token == 0:
            return tokens, "eos"
        assert matcher.consume_token(token)
        tokens.append(token)
        if matcher.is_stopped():
            return tokens, "eos"
    return tokens, "length"


CONTROLS = [
    {"repetition_penalty": 1.5, "frequency_penalty": 0.5},
    {"logit_bias": {5: 3.0, 66: -100.0}},
    {"min_new_tokens": 12},
    {"ignore_eos": True},
    {"stop": ("c",)},
    {"top_k": 2, "min_p": 0.1},
]


@pytest.mark.parametrize("controls", CONTROLS, ids=lambda c: "+".join(c))
@pytest.mark.parametrize("name", ["schema", "regex"])
def test_seeded_answers_are_the_same_with_and_without_trees(ask, controls, name) -> None:
    params = {"max_new_tokens": 40, "temperature": 0.9, "seed": 4, "grammar": GRAMMARS[name]}
    plain = ask(lookup=False)(PROMPT, **(params | controls))
    tree = ask()(PROMPT, **(params | controls))
    assert (tree.tokens, tree.last.finish_reason) == (plain.tokens, plain.last.finish_reason)


@pytest.mark.parametrize("seed", range(4))
def test_what_an_ssm_drafted_is_valid_too(ask, tiny, seed) -> None:
    asked = ask(ssms=(tiny["ssm"], tiny["llama"]))
    got = asked(PROMPT, max_new_tokens=90, temperature=1.0, seed=seed, grammar=GRAMMARS["schema"])
    if got.last.finish_reason == "eos":
        jsonschema.validate(json.loads(got.text), SCHEMA)
    assert got.last.stats.accepted > 0


def test_the_answer_ends_with_the_grammar_inside_an_accepted_run(ask) -> None:
    """The prompt promises more than the grammar lets be said."""
    got = ask()(PROMPT + "ab", max_new_tokens=30, grammar=Grammar.choice(["cabca", "xyz"]))
    first = ask()(PROMPT + "ab", max_new_tokens=30, grammar=Grammar("regex", "cabca"))
    assert first.text == "cabca"
    assert first.last.finish_reason == "eos"
    assert first.last.stats.steps == 1
    assert first.last.stats.emitted == 5
    assert got.text in ("cabca", "xyz")


def test_forced_tokens_are_drafted_and_stand(ask) -> None:
    got = ask()("!", max_new_tokens=30, grammar=Grammar.choice(["abcdefgh", "zyxwvuts"]))
    (drafter,) = (d for d in got.last.stats.drafters if d.name == "grammar")
    assert got.text in ("abcdefgh", "zyxwvuts")
    assert (drafter.drafted, drafter.accepted) == (7, 7)
    assert got.last.stats.steps == 2


def test_the_minimum_and_ignore_eos_do_not_outlast_the_grammar(ask) -> None:
    for controls in ({"min_new_tokens": 20}, {"ignore_eos": True}):
        got = ask()(PROMPT, max_new_tokens=30, grammar=Grammar("regex", "ab?"), **controls)
        assert (got.text, got.last.finish_reason) == ("ab", "eos")


def test_an_answer_may_be_empty(ask) -> None:
    got = ask()(PROMPT, max_new_tokens=30, grammar=Grammar("regex", ""))
    assert (got.tokens, got.last.finish_reason) == ([], "eos")


def test_log_probabilities_are_the_llms_own(ask) -> None:
    got = ask()(PROMPT, max_new_tokens=9, grammar=Grammar("regex", "zzz"), logprobs=2)
    assert got.text == "zzz"
    assert all(len(one.top) == 2 for one in got.last.logprobs)


def test_constrained_and_free_requests_share_a_batch_and_pages(ask) -> None:
    """Few pages: requests step back and go on, their place in the grammar kept."""
    params = [
        {"max_new_tokens": 40, "temperature": 0.8, "seed": seed, "grammar": grammar}
        for seed, grammar in enumerate([*GRAMMARS.values(), None] * 2)
    ]
    alone = ask(lookup=False)
    want = [alone(PROMPT, **one).tokens for one in params]
    crowd = ask(cache_tokens=256, max_batch=8)
    waiting = [crowd.submit(PROMPT, **one)[1] for one in params]
    assert [crowd.gather(deltas).tokens for deltas in waiting] == want


BAD = {
    "unclosed group": Grammar("regex", "(a"),
    "look-ahead": Grammar("regex", "(?=a)b"),
    "nested": Grammar("regex", "(" * 5000 + "a" + ")" * 5000),
    "never matches": Grammar("regex", "[^\\x00-\\U0010ffff]"),
    "not JSON": Grammar("json_schema", "{"),
    "deep": Grammar("json_schema", '{"items":' * 5000 + "{}" + "}" * 5000),
    "no such type": Grammar.json_schema({"type": "thing"}),
    "impossible": Grammar.json_schema({"type": "integer", "minimum": 2, "maximum": 1}),
    "endless": Grammar.json_schema({"$ref": "#"}),
    "elsewhere": Grammar.json_schema({"$ref": "http://example.com/schema.json"}),
    "unknown keyword": Grammar.json_schema({"uniqueItems": True}),
    "unknown rule": Grammar("ebnf", "start: nothing"),
    "no grammar": Grammar("ebnf", "\x00"),
    "too many items": Grammar("ebnf", "start: " + "a? " * 4000 + '\na: "x"'),
}


@pytest.mark.parametrize("grammar", BAD.values(), ids=BAD)
def test_a_bad_grammar_is_refused_by_name_before_any_work(ask, grammar) -> None:
    asked = ask()
    with pytest.raises(ParameterError) as refused:
        asked(PROMPT, grammar=Grammar(grammar.kind, grammar.text, "response_format"))
    assert refused.value.field == "response_format"
    assert len(refused.value.message) <= compiler.MESSAGE + 1
    assert asked.engine.running == asked.engine.queued == 0


def test_sizes_are_limited() -> None:
    with pytest.raises(ParameterError, match=str(MAX_CHARACTERS)):
        Grammar("regex", "a" * (MAX_CHARACTERS + 1))
    for count in (0, MAX_CHOICES + 1):
        with pytest.raises(ParameterError, match="choices"):
            Grammar.choice(["a"] * count)


@pytest.mark.parametrize("text", ["(.*a.{0,18}|.*b.{0,19}|.*c.{0,17})x", "(a|b)*a(a|b){24}"])
def test_a_pathological_expression_is_served(ask, text) -> None:
    got = ask()(PROMPT, max_new_tokens=20, temperature=1.0, grammar=Grammar("regex", text))
    assert got.last.finish_reason in ("length", "eos")


def test_a_grammar_that_gives_up_ends_its_own_request_only(ask) -> None:
    """Its first tokens are harmless; what may follow them is beyond the parser's limit."""
    late = Grammar("ebnf", 'start: "xyz" ' + "a? " * 4000 + '\na: "w"')
    asked = ask()
    bad = asked.submit(PROMPT, max_new_tokens=20, grammar=late)[1]
    good = asked.submit(PROMPT, max_new_tokens=20, grammar=Grammar("regex", "[a-c]{20}"))[1]
    failed = asked.gather(bad)
    assert failed.last.finish_reason == "error"
    assert failed.last.error.startswith("grammar: ")
    assert failed.text in ("", "x", "xy", "xyz")
    assert len(asked.gather(good).tokens) == 20


def test_without_the_library_the_error_says_what_to_install(ask, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    asked = ask()
    with pytest.raises(ParameterError, match=r"pip install 'specinfer-sagemaker\[grammar\]'"):
        asked(PROMPT, grammar=GRAMMARS["regex"])
    assert asked(PROMPT, max_new_tokens=3, ignore_eos=True).tokens


def test_a_grammar_is_compiled_once_and_few_are_kept(tiny) -> None:
    from specinfer.tokenizer import Tokenizer

    calls = []

    def definition() -> str:
        calls.append(1)
        return Tokenizer(tiny["llama"]).definition()

    grammars = compiler.Grammars(definition, vocab=97, eos=frozenset({0}), size=2)
    first = grammars.constraint(GRAMMARS["regex"])
    assert first.advance(65)
    assert not grammars.constraint(GRAMMARS["regex"]).advance(33), "a copy starts afresh"
    for name in ("choice", "gbnf", "lark"):
        grammars.constraint(GRAMMARS[name])
    assert list(grammars._compiled) == [GRAMMARS["gbnf"], GRAMMARS["lark"]]
    assert len(calls) == 1


def test_a_model_without_an_end_takes_no_grammar(tiny) -> None:
    grammars = compiler.Grammars(lambda: "{}", vocab=97, eos=frozenset())
    with pytest.raises(ParameterError, match="names no token"):
        grammars.constraint(GRAMMARS["regex"])
    unfit = compiler.Grammars(lambda: "{}", vocab=97, eos=frozenset({0}))
    with pytest.raises(ParameterError, match="takes no grammars"):
        unfit.constraint(GRAMMARS["regex"])


def test_a_constraint_looks_ahead_without_moving() -> None:
    constraint = Constraint(Automaton(4, {"A": {1: "B"}, "B": {2: "C"}, "C": {}}, "C", end=0))
    assert constraint.forced() == [1, 2, 0]
    assert constraint.admits([1, 2, 0])
    assert not constraint.admits([1, 1])
    assert constraint.mask([1, 2]).tolist() == [True, False, False, False]  # type: ignore[union-attr]
    assert constraint.mask([2]) is None
    assert not constraint.over
    assert constraint.advance(1)
    assert not constraint.advance(1)
    assert constraint.advance(2)
    assert constraint.over


def test_parameters_compare_by_what_they_demand() -> None:
    one, other = (Grammar.json_object(field) for field in ("a", "b"))
    assert SamplingParams(grammar=one) == SamplingParams(grammar=other)
