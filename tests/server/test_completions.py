"""OpenAI's completions, over HTTP."""

import json

import pytest


@pytest.mark.parametrize("path", ["/invocations", "/v1/completions"])
@pytest.mark.parametrize("prompt", ["abc", ["abc"], [97, 98, 99], [[97, 98, 99]]])
def test_a_prompt_may_be_text_or_tokens_alone_or_in_a_list_of_one(server, path, prompt):
    document = server.post({"prompt": prompt, "max_tokens": 4}, path).json()
    assert document["object"] == "text_completion"
    assert document["choices"] == [
        {"index": 0, "text": "abca", "logprobs": None, "finish_reason": "length"}
    ]
    assert document["usage"]["completion_tokens"] == 4
    assert document["usage"]["speculation"]["steps"] == 2


def test_an_answer_that_ends_by_itself_finished_with_stop(server):
    document = server.post({"prompt": [97, 98, 99, 100, 256]}).json()
    assert document["choices"][0]["text"] == "abcd"
    assert document["choices"][0]["finish_reason"] == "stop"


def test_stream_closes_with_usage_when_asked_and_done(server):
    options = {"include_usage": True}
    body = {"prompt": "abc", "max_tokens": 7, "stream": True, "stream_options": options}
    *events, done = [line[6:] for line in server.post(body).text.split("\n\n") if line]
    assert done == "[DONE]"
    *pieces, last, usage = [json.loads(event) for event in events]
    assert "".join(event["choices"][0]["text"] for event in [*pieces, last]) == "abcabca"
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 10


@pytest.mark.parametrize("prompt", ["ab", [97, 98]])
def test_echo_puts_the_prompt_before_the_answer(server, prompt):
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "echo": True}
    (choice,) = server.post(body).json()["choices"]
    assert choice["text"] == "ababab"
    assert text_of(server.post(body | {"stream": True})) == "ababab"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1000]}, "prompt"),
        ({"prompt": {"text": "a"}}, "prompt"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 0, "echo": True}, "logprobs"),
        ({"n": 100}, "n"),
        ({"suffix": "x"}, "suffix"),
        ({"logit_bias": {"7": None}}, "logit_bias.7"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_a_wrong_body_is_400_with_the_field_named(server, change, field):
    response = server.post({"prompt": "a"} | change)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"].startswith(field)
    assert field in error["message"]


def test_greedy_text_is_the_same_in_every_dialect_and_mode(server):
    texts = set()
    for stream in (False, True):
        body = {"stream": stream, "temperature": 0, "max_tokens": 9}
        chat = body | {"messages": [{"role": "user", "content": "parity "}]}
        completion = body | {"prompt": "parity "}
        tgi = {"inputs": "parity ", "parameters": {"max_new_tokens": 9}, "stream": stream}
        texts |= {text_of(server.post(each)) for each in (chat, completion, tgi)}
    assert texts == {"parity pa"}


def text_of(response):
    """The text of any answer, whole or streamed."""
    if response.headers["content-type"] == "application/json":
        document = response.json()
        if isinstance(document, list):
            return document[0]["generated_text"]
        choice = document["choices"][0]
        return choice["text"] if "text" in choice else choice["message"]["content"]
    lines = [line[6:] for line in response.text.split("\n\n") if line]
    events = [json.loads(line) for line in lines if line != "[DONE]"]
    if "token" in events[0]:
        return "".join(event["token"]["text"] for event in events)
    choices = [event["choices"][0] for event in events]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)
