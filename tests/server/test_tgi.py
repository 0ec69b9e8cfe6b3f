"""The dialect of text-generation-inference, over HTTP."""

import json

import pytest

from specinfer.testing.fake_engine import FakeEngine


def test_answer_is_an_array_of_one_with_details(server):
    response = server.post({"inputs": "abc", "parameters": {"max_new_tokens": 7}})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    (answer,) = response.json()
    assert answer["generated_text"] == "abcabca"
    details = answer["details"]
    assert details["finish_reason"] == "length"
    assert (details["generated_tokens"], details["prompt_tokens"]) == (7, 3)
    assert details["seed"] is None
    figures = details["speculation"]
    assert (figures["steps"], figures["accepted"]) == (3, 4)
    assert figures["tokens_per_step"] == pytest.approx(7 / 3, abs=1e-3)
    assert figures["ssms"] == [{"name": "fake", "drafted": 9, "accepted": 4}]
    assert {"queue_ms", "prefill_ms", "ssm_ms", "verify_ms", "commit_ms"} <= figures.keys()


def test_lmi_users_can_have_an_object(start):
    server = start(tgi_object=True)
    assert server.post({"inputs": "a"}).json()["generated_text"].startswith("aaa")


def test_details_list_the_tokens_when_asked(server):
    body = {"inputs": "ab", "parameters": {"max_new_tokens": 2, "details": True}}
    (answer,) = server.post(body).json()
    tokens = [(token["id"], token["text"]) for token in answer["details"]["tokens"]]
    assert tokens == [(97, "a"), (98, "b")]


def test_full_text_and_truncation_from_the_left(server):
    parameters = {"max_new_tokens": 2, "return_full_text": True, "truncate": 2}
    (answer,) = server.post({"inputs": "wxyz", "parameters": parameters}).json()
    assert answer["generated_text"] == "wxyzyz"
    assert answer["details"]["prompt_tokens"] == 2


def test_stop_strings_under_both_names_are_never_shown(server):
    for name in ("stop", "stop_sequences"):
        (answer,) = server.post({"inputs": "hello ", "parameters": {name: ["lo h"]}}).json()
        assert answer["generated_text"] == "hel"
        assert answer["details"]["finish_reason"] == "stop_sequence"


@pytest.mark.parametrize(
    ("parameters", "temperature"),
    [
        ({}, 0.0),
        ({"temperature": 0}, 0.0),
        ({"do_sample": False, "temperature": 0.7}, 0.0),
        ({"do_sample": True}, 1.0),
        ({"do_sample": True, "temperature": 0}, 0.0),
        ({"temperature": 0.7}, 0.7),
        ({"top_k": 5}, 1.0),
        ({"top_k": -1}, 0.0),
        ({"top_p": 0.9}, 1.0),
        ({"top_p": 1.0}, 0.0),
        ({"typical_p": 0.9}, 1.0),
        ({"min_p": 0.1}, 1.0),
        ({"repetition_penalty": 1.1}, 0.0),
    ],
)
def test_what_means_sampling(server, parameters, temperature):
    response = server.post({"inputs": "x", "parameters": parameters | {"max_new_tokens": 1}})
    assert response.status_code == 200
    params = server.engine.requests[-1].request.params
    assert params.temperature == temperature
    assert response.json()[0]["details"]["seed"] == (4711 if temperature else None)


def test_a_given_seed_reaches_the_engine(server):
    body = {"inputs": "x", "parameters": {"do_sample": True, "seed": 5, "max_new_tokens": 1}}
    assert server.post(body).json()[0]["details"]["seed"] == 5
    assert server.engine.requests[-1].request.params.seed == 5


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"inputs": ["a", "b"]}, "inputs"),
        ({"inputs": ""}, "inputs"),
        ({"inputs": None}, "inputs"),
        ({"inputs": "a", "parameters": {"temperature": "hot"}}, "parameters.temperature"),
        ({"inputs": "a", "parameters": {"temperature": -1}}, "parameters.temperature"),
        ({"inputs": "a", "parameters": {"max_new_tokens": 0}}, "parameters.max_new_tokens"),
        ({"inputs": "a", "parameters": {"max_new_tokens": True}}, "parameters.max_new_tokens"),
        ({"inputs": "a", "parameters": {"max_new_tokens": 10**6}}, "parameters.max_new_tokens"),
        ({"inputs": "a", "parameters": {"top_p": 0}}, "parameters.top_p"),
        ({"inputs": "a", "parameters": {"stop": [""]}}, "parameters.stop.0"),
        ({"inputs": "a", "parameters": {"stop": ["a"] * 5}}, "parameters.stop"),
        ({"inputs": "a", "parameters": {"seed": -1}}, "parameters.seed"),
        ({"inputs": "a", "parameters": {"seed": 2**70}}, "parameters.seed"),
        ({"inputs": "a", "parameters": []}, "parameters"),
        ({"inputs": "a", "parameters": {"best_of": 2}}, "parameters.best_of"),
        ({"inputs": "a", "parameters": {"repetition_penalty": 0}}, "parameters.repetition_penalty"),
        ({"inputs": "a", "parameters": {"frequency_penalty": 3}}, "parameters.frequency_penalty"),
        ({"inputs": "a", "parameters": {"typical_p": 0}}, "parameters.typical_p"),
        ({"inputs": "a", "parameters": {"min_p": -0.1}}, "parameters.min_p"),
        ({"inputs": "a", "parameters": {"top_n_tokens": 21}}, "parameters.top_n_tokens"),
        (
            {"inputs": "a", "parameters": {"min_new_tokens": 9, "max_new_tokens": 8}},
            "parameters.min_new_tokens",
        ),
        ({"inputs": "a", "parameters": {"grammar": {"type": "json"}}}, "parameters.grammar.value"),
        ({"inputs": "a", "stream": "yes"}, "stream"),
    ],
)
def test_a_wrong_body_is_422_with_the_field_named(server, body, field):
    response = server.post(body)
    assert response.status_code == 422
    document = response.json()
    assert document["error_type"] == "validation"
    assert document["param"] == field
    assert field in document["error"]
    assert not server.engine.requests


def test_keys_that_client_libraries_leak_are_ignored(server):
    body = {"inputs": "a", "sagemaker_base_url": "x", "parameters": {"unheard_of": 1}}
    assert server.post(body).status_code == 200


def test_parameters_that_ask_for_nothing_are_accepted(server):
    neutral = {"best_of": 1, "repetition_penalty": 1.0, "grammar": None, "watermark": False}
    assert server.post({"inputs": "a", "parameters": neutral}).status_code == 200


def test_stream_ends_with_the_text_and_details(server):
    body = {"inputs": "abc", "parameters": {"max_new_tokens": 7}, "stream": True}
    response = server.post(body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.content.endswith(b"\n\n")
    assert b"[DONE]" not in response.content
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line]
    assert [event["token"]["text"] for event in events] == ["abc", "abc", "a"]
    assert events[0]["token"]["ids"] == [97, 98, 99]
    assert all(event["generated_text"] is None for event in events[:-1])
    assert events[-1]["generated_text"] == "abcabca"
    assert events[-1]["details"]["finish_reason"] == "length"
    assert events[-1]["details"]["speculation"]["steps"] == 3


def test_generate_and_generate_stream_choose_the_mode_themselves(server):
    body = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 1}}
    assert server.post(body, "/generate").json()[0]["generated_text"] == "a"
    streamed = server.post(body | {"stream": False}, "/generate_stream")
    assert streamed.text.startswith("data: ")


def test_prompt_longer_than_the_context_states_both_numbers(start):
    server = start(FakeEngine(max_context=10))
    response = server.post({"inputs": "x" * 12})
    assert response.status_code == 422
    assert response.json()["code"] == "context_length_exceeded"
    assert "12 tokens" in response.json()["error"]
    assert "10" in response.json()["error"]
