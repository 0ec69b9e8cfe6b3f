"""OpenAI's chat completions, over HTTP."""

import json

import pytest

HELLO = [{"role": "user", "content": "hello "}]


def chunks(response):
    lines = [line[6:] for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("path", ["/invocations", "/v1/chat/completions"])
def test_answer_is_a_chat_completion_with_usage(server, path):
    document = server.post({"messages": HELLO, "model": "", "max_tokens": 6}, path).json()
    assert document["object"] == "chat.completion"
    assert (document["id"], document["created"]) == ("answer-1", 1_700_000_000)
    assert (document["model"], document["system_fingerprint"]) == ("fake", "fake-revision")
    (choice,) = document["choices"]
    assert choice["message"] == {"role": "assistant", "content": "hello "}
    assert choice["finish_reason"] == "length"
    usage = document["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (6, 6)
    assert usage["total_tokens"] == 12
    assert usage["speculation"]["steps"] == 2


def test_content_may_come_in_text_parts(server):
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_completion_tokens": 3}
    assert server.post(body).json()["choices"][0]["message"]["content"] == "abc"


def test_default_is_sampling_and_temperature_zero_is_greedy(server):
    server.post({"messages": HELLO})
    assert server.engine.requests[-1].request.params.temperature == 1.0
    server.post({"messages": HELLO, "temperature": 0})
    assert server.engine.requests[-1].request.params.greedy


def test_stop_may_be_one_string(server):
    choice = server.post({"messages": HELLO, "stop": "lo"}).json()["choices"][0]
    assert choice["message"]["content"] == "hel"
    assert choice["finish_reason"] == "stop"


def test_stream_opens_with_the_role_and_closes_with_the_reason(server):
    response = server.post({"messages": HELLO, "max_tokens": 6, "stream": True})
    events = chunks(response)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-1]["choices"][0]["delta"] == {}
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert all(event["object"] == "chat.completion.chunk" for event in events)
    assert all("usage" not in event for event in events)
    deltas = [event["choices"][0]["delta"].get("content", "") for event in events]
    assert "".join(deltas) == "hello "


def test_usage_comes_in_a_chunk_of_its_own_when_asked(server):
    options = {"include_usage": True}
    body = {"messages": HELLO, "max_tokens": 6, "stream": True, "stream_options": options}
    *_, last = chunks(server.post(body))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6
    assert last["usage"]["speculation"]["tokens_per_step"] == 3


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages.0.content",
        ),
        ({"n": 9}, "n"),
        ({"n": 0}, "n"),
        ({"n": 2, "seed": 2**63 - 1}, "seed"),
        ({"logprobs": 3}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_p": 1.1}, "min_p"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"stop_token_ids": [-1]}, "stop_token_ids.0"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"temperature": 1e9}, "temperature"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"max_completion_tokens": 10**9}, "max_completion_tokens"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stream_options": 1}, "stream_options"),
    ],
)
def test_a_wrong_body_is_400_with_the_field_named(server, change, field):
    response = server.post({"messages": HELLO} | change)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(field)
    assert field in error["message"]
    assert error["code"]
    assert not server.engine.requests
