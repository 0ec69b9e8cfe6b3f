"""Several choices of one request (`n`), whole and streamed."""

import json

import pytest

from specinfer.testing.fake_engine import FakeEngine

CHAT = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 7}
COMPLETION = {"prompt": "ab", "max_tokens": 7}
BOTH = pytest.mark.parametrize("body", [CHAT, COMPLETION], ids=["chat", "completions"])


def text_of(choice):
    if "delta" in choice:
        return choice["delta"].get("content", "")
    return choice["text"] if "text" in choice else choice["message"]["content"]


def events(response):
    lines = [line[6:] for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@BOTH
def test_greedy_choices_are_equal_and_numbered(server, body):
    document = server.post(body | {"n": 3, "temperature": 0}).json()
    assert [choice["index"] for choice in document["choices"]] == [0, 1, 2]
    assert {text_of(choice) for choice in document["choices"]} == {"abababa"}
    usage = document["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2, 21)
    figures = usage["speculation"]
    assert (figures["steps"], figures["accepted"]) == (9, 12)
    assert figures["ssms"] == [{"name": "fake", "drafted": 27, "accepted": 12}]


@BOTH
@pytest.mark.parametrize(("seed", "seeds"), [(5, [5, 6, 7]), (None, [4711, 4712, 4713])])
def test_each_choice_has_its_own_seed(server, body, seed, seeds):
    server.post(body | {"n": 3, "seed": seed})
    assert [handle.request.params.seed for handle in server.engine.requests] == seeds


@BOTH
def test_streamed_choices_each_come_whole_and_usage_comes_last(server, body):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = events(server.post(body | options | {"n": 3}))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 21
    texts, reasons = ["", "", ""], [[], [], []]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += text_of(choice)
        reasons[choice["index"]].append(choice["finish_reason"])
    assert texts == ["abababa"] * 3
    for each in reasons:
        assert each[-1] == "length"
        assert not any(each[:-1])


@pytest.mark.parametrize("stream", [False, True])
def test_a_queue_that_cannot_take_all_takes_none(start, wait_until, stream):
    server = start(FakeEngine(queue_limit=2, step_s=0.01))
    body = CHAT | {"n": 3, "stream": stream, "max_tokens": 2000}
    assert server.post(body).status_code == 429
    wait_until(lambda: server.engine.running == 0, "the end of the choices already begun")


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_fails_fails_all_choices(start, stream):
    server = start(FakeEngine(fail_at_step=2))
    response = server.post(CHAT | {"n": 3, "stream": stream})
    assert response.status_code == (200 if stream else 500)
    assert "generation_failed" in response.text
    assert "[DONE]" not in response.text


def test_a_caller_that_leaves_stops_every_choice(start, wait_until):
    server = start(FakeEngine(step_s=0.01))
    body = COMPLETION | {"n": 4, "stream": True, "max_tokens": 2000}
    with server.client.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_raw())
    wait_until(lambda: server.engine.running == 0, "the end of all choices")
    assert all(handle.steps < 200 for handle in server.engine.requests)


def test_a_deadline_ends_all_choices_with_their_text(start):
    server = start(FakeEngine(step_s=0.02), deadline_s=0.3)
    document = server.post(COMPLETION | {"n": 2, "max_tokens": 2000}).json()
    assert [choice["truncated_by"] for choice in document["choices"]] == ["deadline"] * 2
