"""The routes as a caller sees them: answers, errors with the field named, health."""

import base64
import json
from typing import Any

import pytest

CHAT = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def test_generate_answers_with_the_object_that_the_container_wraps_in_an_array(caller):
    reply = caller.post("/generate", {"inputs": "hi"})
    assert reply.status == 200
    assert reply.json["generated_text"] == "an answer"
    assert reply.json["details"]["speculation"]["tokens_per_step"] == 2.5
    assert reply.headers["X-Cache"] == "MISS"


def test_chat_answers_with_the_openai_document(caller):
    reply = caller.post("/v1/chat/completions", CHAT)
    assert reply.status == 200
    assert reply.json["choices"][0]["message"]["content"] == "an answer"


def test_completions_are_forwarded_with_their_prompt(caller):
    reply = caller.post("/v1/completions", {"prompt": "hi", "temperature": 0})
    assert reply.status == 200
    assert json.loads(caller.runtime.calls[0]["Body"])["prompt"] == "hi"


def test_the_answer_s_length_is_always_named_so_that_no_default_of_the_container_matters(caller):
    caller.post("/generate", {"inputs": "hi"})
    caller.post("/v1/chat/completions", CHAT | {"max_completion_tokens": 7})
    first, second = (json.loads(call["Body"]) for call in caller.runtime.calls)
    assert first["parameters"]["max_new_tokens"] == caller.settings.default_max_new_tokens
    assert "max_tokens" not in second


def test_health_does_not_call_the_endpoint(caller):
    reply = caller.send(caller.event("GET", "/health"))
    assert (reply.status, reply.json) == (200, {"status": "ok"})
    assert caller.runtime.calls == []


BAD: list[tuple[str, Any, str]] = [
    ("/v1/chat/completions", {"messages": []}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
    ("/v1/chat/completions", CHAT | {"temperature": -1}, "temperature"),
    ("/v1/chat/completions", CHAT | {"temperature": "0"}, "temperature"),
    ("/v1/chat/completions", CHAT | {"max_tokens": 0}, "max_tokens"),
    ("/v1/chat/completions", CHAT | {"max_tokens": 100_000}, "max_tokens"),
    ("/v1/chat/completions", CHAT | {"stop": ["a"] * 5}, "stop"),
    ("/v1/chat/completions", CHAT | {"n": 2}, "n"),
    ("/v1/chat/completions", CHAT | {"stream": True}, "stream"),
    ("/v1/chat/completions", CHAT | {"prompt": "hi"}, "prompt"),
    ("/v1/chat/completions", {"messages": [CHAT["messages"][0]] * 257}, "messages"),
    ("/v1/completions", {}, "prompt"),
    ("/v1/completions", {"prompt": "x" * 100_001}, "prompt"),
]


@pytest.mark.parametrize(("path", "body", "param"), BAD)
def test_a_faulty_openai_body_is_a_400_naming_the_field(caller, path, body, param):
    reply = caller.post(path, body)
    assert reply.status == 400
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert reply.json["error"]["param"] == param
    assert caller.runtime.calls == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "inputs"),
        ({"inputs": ""}, "inputs"),
        ({"inputs": ["a"]}, "inputs"),
        ({"inputs": "a", "parameters": {"top_p": 0}}, "parameters.top_p"),
        ({"inputs": "a", "parameters": {"max_new_tokens": 9999}}, "parameters.max_new_tokens"),
    ],
)
def test_a_faulty_generate_body_is_a_422_naming_the_field(caller, body, param):
    reply = caller.post("/generate", body)
    assert reply.status == 422
    assert reply.json["error_type"] == "validation"
    assert reply.json["param"] == param


@pytest.mark.parametrize(
    ("body", "encoded"),
    [
        (None, False),
        ("", False),
        ("{", False),
        ("[1]", False),
        ("3", False),
        ('{"inputs": NaN}', False),
        ('{"inputs": "a", "parameters": {"temperature": 1e999}}', False),
        ('{"inputs": "\\ud800"}', False),
        ("[" * 100_000, False),
        ("***", True),
        (base64.b64encode(b"\xff\xfe").decode(), True),
    ],
)
def test_what_is_no_json_object_is_a_400_and_never_a_fault_of_ours(caller, body, encoded):
    event = caller.event("POST", "/v1/chat/completions", body) | {"isBase64Encoded": encoded}
    reply = caller.send(event)
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_json")


def test_a_base64_body_is_read(caller):
    text = base64.b64encode(json.dumps({"inputs": "日本"}).encode()).decode()
    reply = caller.send(caller.event("POST", "/generate", text) | {"isBase64Encoded": True})
    assert reply.status == 200
    assert json.loads(caller.runtime.calls[0]["Body"])["inputs"] == "日本"


def test_a_large_body_is_a_413_stating_both_numbers(caller):
    reply = caller.post("/generate", {"inputs": "x" * 300_000})
    assert reply.status == 413
    assert "262144" in reply.json["error"]


def test_unknown_keys_travel_on_and_are_no_error(caller):
    reply = caller.post("/generate", {"inputs": "hi", "sagemaker_base_url": "x"})
    assert reply.status == 200


def test_an_answer_is_never_base64(caller):
    """API Gateway would hand base64 on as it is unless binary media types were set up."""
    event = caller.event("POST", "/generate", '{"inputs": "hi"}', {"Accept-Encoding": "gzip"})
    assert caller.send(event).json["generated_text"] == "an answer"


def test_an_unknown_path_is_a_404_in_json(caller):
    reply = caller.post("/nowhere", {})
    assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")
