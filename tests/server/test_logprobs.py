"""Log-probabilities in each dialect's form, whole and streamed.

The fake engine gives a chosen byte -0.5, the byte after it -1.5, and so on.
"""

import json

import pytest

from specinfer.request import TokenLogprob
from specinfer.server.dialects.logprobs import chat_logprobs, completion_logprobs

CHAT = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 4, "logprobs": True}
COMPLETION = {"prompt": "abc", "max_tokens": 4, "temperature": 0}
A = {"token": "a", "logprob": -0.5, "bytes": [97]}
B_INSTEAD = {"token": "b", "logprob": -1.5, "bytes": [98]}


def events(server, body):
    text = server.post(body | {"stream": True}).text
    lines = [line[6:] for line in text.split("\n\n") if line]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def choices(server, body):
    return [event["choices"][0] for event in events(server, body)]


def test_chat_tells_each_token_and_the_likeliest_in_its_place(server):
    (choice,) = server.post(CHAT | {"top_logprobs": 2}).json()["choices"]
    content = choice["logprobs"]["content"]
    assert [entry["token"] for entry in content] == list("abca")
    assert content[0] == A | {"top_logprobs": [A, B_INSTEAD]}


def test_chat_without_top_logprobs_tells_none(server):
    (choice,) = server.post(CHAT).json()["choices"]
    assert choice["logprobs"]["content"][0] == A | {"top_logprobs": []}


def test_a_chat_stream_tells_the_same(server):
    body = CHAT | {"top_logprobs": 2}
    told = [c["logprobs"]["content"] for c in choices(server, body) if c["logprobs"]]
    whole = server.post(body).json()["choices"][0]["logprobs"]["content"]
    assert [entry for content in told for entry in content] == whole


def test_nobody_gets_them_unasked(server):
    for body in (CHAT | {"logprobs": False}, COMPLETION):
        assert server.post(body).json()["choices"][0]["logprobs"] is None
        assert all(choice["logprobs"] is None for choice in choices(server, body))


def test_completions_tell_columns_with_offsets(server):
    (choice,) = server.post(COMPLETION | {"logprobs": 2}).json()["choices"]
    assert choice["logprobs"] == {
        "tokens": list("abca"),
        "token_logprobs": [-0.5] * 4,
        "top_logprobs": [{text: -0.5, after: -1.5} for text, after in ("ab", "bc", "cd", "ab")],
        "text_offset": [0, 1, 2, 3],
    }


def test_zero_asks_for_the_chosen_tokens_alone(server):
    (choice,) = server.post(COMPLETION | {"logprobs": 0}).json()["choices"]
    assert choice["logprobs"]["token_logprobs"] == [-0.5] * 4
    assert choice["logprobs"]["top_logprobs"] is None


def test_a_completion_stream_goes_on_counting_offsets(server):
    told = choices(server, COMPLETION | {"logprobs": 1})
    offsets = [place for choice in told for place in choice["logprobs"]["text_offset"]]
    assert offsets == [0, 1, 2, 3]


def test_tgi_details_have_them_and_top_tokens_when_asked(server):
    parameters = {"max_new_tokens": 4, "details": True, "top_n_tokens": 2}
    details = server.post({"inputs": "abc", "parameters": parameters}).json()[0]["details"]
    assert [token["logprob"] for token in details["tokens"]] == [-0.5] * 4
    first = [(token["text"], token["logprob"]) for token in details["top_tokens"][0]]
    assert first == [("a", -0.5), ("b", -1.5)]
    del parameters["top_n_tokens"]
    details = server.post({"inputs": "abc", "parameters": parameters}).json()[0]["details"]
    assert details["tokens"][0]["logprob"] == -0.5
    assert "top_tokens" not in details


def test_a_tgi_stream_tells_those_of_all_tokens_of_a_step(server):
    parameters = {"max_new_tokens": 4, "top_n_tokens": 2}
    first, last = events(server, {"inputs": "abc", "parameters": parameters})
    assert first["token"]["logprob"] == -0.5
    assert first["token"]["logprobs"] == [-0.5] * 3
    assert [len(top) for top in first["top_tokens"]] == [2] * 3
    assert len(last["top_tokens"]) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_take_their_logprobs_with_them(server, stream):
    body = CHAT | {"stop": "ca", "max_tokens": 9, "stream": stream}
    if not stream:
        content = server.post(body).json()["choices"][0]["logprobs"]["content"]
    else:
        told = choices(server, body)
        content = [e for c in told if c["logprobs"] for e in c["logprobs"]["content"]]
    assert [entry["token"] for entry in content] == ["a", "b"]


def test_part_of_a_character_has_no_bytes_and_minus_infinity_is_a_number():
    def decode(tokens):
        return "".join({1: "a", 2: "\ufffd"}[token] for token in tokens)

    each = [TokenLogprob(2, -float("inf"), ((1, -1.0), (2, -2.0)))]
    (entry,) = chat_logprobs(each, decode)["content"]
    assert (entry["logprob"], entry["bytes"]) == (-9999.0, None)
    told = completion_logprobs(each, decode, 7)
    assert told["top_logprobs"] == [{"a": -1.0, "\ufffd": -2.0}]
    assert told["text_offset"] == [7]
