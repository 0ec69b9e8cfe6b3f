"""What an answer must match, in every dialect's words: it reaches the engine, or is refused."""

import json

import jsonschema
import pytest

from specinfer.config import EngineConfig
from specinfer.grammar.spec import MAX_CHARACTERS, Grammar
from specinfer.server.run import load_engine
from specinfer.testing.toy import write_tiny_model

SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "integer", "maximum": 99}, "a": {"enum": ["x", "y"]}},
    "required": ["b", "a"],
    "additionalProperties": False,
}
TEXT = json.dumps(SCHEMA)
CHAT = {"messages": [{"role": "user", "content": "a"}]}
COMPLETION = {"prompt": "a"}
DEMANDS = [
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}}, Grammar.json_object()),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "strict": True, "schema": SCHEMA},
            }
        },
        Grammar.json_schema(SCHEMA),
    ),
    ({"structured_outputs": {"json": SCHEMA}}, Grammar.json_schema(SCHEMA)),
    ({"structured_outputs": {"json": TEXT}}, Grammar("json_schema", TEXT)),
    ({"structured_outputs": {"regex": "a+"}}, Grammar("regex", "a+")),
    ({"structured_outputs": {"choice": ["a", "b"]}}, Grammar.choice(["a", "b"])),
    ({"structured_outputs": {"grammar": 'start: "a"'}}, Grammar("ebnf", 'start: "a"')),
    ({"structured_outputs": {"json_object": True}}, Grammar.json_object()),
    ({"structured_outputs": {"disable_any_whitespace": False}}, None),
    ({"guided_json": SCHEMA}, Grammar.json_schema(SCHEMA)),
    ({"guided_regex": "a+"}, Grammar("regex", "a+")),
    ({"guided_choice": ["a", "b"]}, Grammar.choice(["a", "b"])),
    ({"guided_grammar": 'root ::= "a"'}, Grammar("ebnf", 'root ::= "a"')),
]
TGI_DEMANDS = [
    ({"type": "json", "value": SCHEMA}, Grammar.json_schema(SCHEMA)),
    ({"type": "json_object", "value": TEXT}, Grammar("json_schema", TEXT)),
    (
        {"type": "json_schema", "value": {"name": "n", "schema": SCHEMA}},
        Grammar.json_schema(SCHEMA),
    ),
    ({"type": "regex", "value": "a+"}, Grammar("regex", "a+")),
]


@pytest.mark.parametrize(("demand", "grammar"), DEMANDS)
@pytest.mark.parametrize("body", [CHAT, COMPLETION], ids=["chat", "completions"])
def test_openais_and_vllms_words_reach_the_engine(server, body, demand, grammar):
    response = server.post(body | demand)
    assert response.status_code == 200, response.text
    assert server.engine.requests[-1].request.params.grammar == grammar


@pytest.mark.parametrize(("demand", "grammar"), TGI_DEMANDS)
def test_tgis_words_reach_the_engine(server, demand, grammar):
    response = server.post({"inputs": "a", "parameters": {"grammar": demand}})
    assert response.status_code == 200, response.text
    assert server.engine.requests[-1].request.params.grammar == grammar


REFUSED = [
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "json_schema.schema"),
    ({"response_format": "json"}, "response_format"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern"),
    ({"structural_tag": {}}, "structural_tag"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    ({"guided_regex": "a" * (MAX_CHARACTERS + 1)}, "guided_regex"),
    ({"guided_json": {"enum": ["a" * MAX_CHARACTERS]}}, "guided_json"),
    ({"guided_regex": "("}, "guided_regex"),
]


@pytest.mark.parametrize(("demand", "field"), REFUSED)
def test_a_faulty_demand_is_refused_by_name(server, demand, field):
    response = server.post(CHAT | demand)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"].endswith(field)
    assert field in error["message"]
    assert len(error["message"]) < 400
    assert not server.engine.requests


@pytest.mark.parametrize(
    ("demand", "field"),
    [
        ({"type": "regex", "value": {}}, "parameters.grammar.value"),
        ({"type": "json_schema", "value": {"name": "n"}}, "parameters.grammar.value.schema"),
        ({"type": "yaml", "value": ""}, "parameters.grammar.type"),
        ({"type": "regex", "value": "("}, "parameters.grammar.value"),
    ],
)
def test_tgis_faulty_demands_too(server, demand, field):
    response = server.post({"inputs": "a", "parameters": {"grammar": demand}})
    assert response.status_code == 422
    assert response.json()["param"] == field
    assert not server.engine.requests


@pytest.fixture(scope="module")
def real(tmp_path_factory, start_for_module):
    """Return a server with a tiny real engine."""
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"), "llama", vocab=97)
    config = EngineConfig(model=folder, max_batch=4, cache_tokens=1024, device="cpu", threads=1)
    return start_for_module(load=lambda: load_engine(config))


def test_real_answers_match_in_every_dialect_and_in_streams(real):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    chat = CHAT | {"response_format": form, "n": 3, "temperature": 1.0, "seed": 1}
    for choice in real.post(chat).json()["choices"]:
        assert choice["finish_reason"] == "stop"
        document = json.loads(choice["message"]["content"])
        jsonschema.validate(document, SCHEMA)
        assert list(document) == ["b", "a"]
    tgi = {"inputs": "a", "parameters": {"grammar": {"type": "regex", "value": "(xy){3,5}"}}}
    (answer,) = real.post(tgi).json()
    assert answer["generated_text"] in {"xy" * count for count in (3, 4, 5)}
    assert answer["details"]["finish_reason"] == "eos_token"
    streamed = real.post(COMPLETION | {"guided_choice": ["left", "right"], "stream": True})
    events = [json.loads(line[6:]) for line in streamed.text.split("\n\n")[:-2]]
    assert "".join(event["choices"][0]["text"] for event in events) in ("left", "right")


@pytest.mark.parametrize(
    "demand",
    [
        {"guided_regex": "(a"},
        {"guided_json": {"type": "integer", "minimum": 2, "maximum": 1}},
        {"guided_grammar": "start: nothing"},
        {"structured_outputs": {"json": "{"}},
    ],
)
def test_what_cannot_be_compiled_is_refused_and_harms_nobody(real, demand):
    response = real.post(COMPLETION | demand)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith(next(iter(demand)))
    assert real.client.get("/ping").status_code == 200
