"""Batch transform: JSON lines."""

import json

from specinfer.testing.fake_engine import FakeEngine

LINES = {"Content-Type": "application/jsonlines"}


def post(server, lines):
    content = "\n".join(lines)
    response = server.client.post("/invocations", content=content, headers=LINES)
    assert response.status_code == 200
    assert response.text.endswith("\n") or not lines
    return [json.loads(line) for line in response.text.splitlines()]


def test_answers_keep_the_order_of_their_lines_whatever_the_dialect(server):
    short, long = {"max_new_tokens": 1}, {"max_new_tokens": 300}
    first, second, third = post(
        server,
        [
            json.dumps({"inputs": "slow ", "parameters": long}),
            json.dumps({"inputs": "q", "parameters": short}),
            json.dumps({"messages": [{"role": "user", "content": "chat"}], "max_tokens": 4}),
        ],
    )
    assert first[0]["generated_text"].startswith("slow slow")
    assert second[0]["generated_text"] == "q"
    assert third["choices"][0]["message"]["content"] == "chat"


def test_a_faulty_line_fails_alone(server):
    good = json.dumps({"inputs": "a", "parameters": {"max_new_tokens": 1}})
    answers = post(server, ["{", good, '{"inputs": ""}', "", good])
    assert answers[0]["error"]["code"] == "invalid_json"
    assert answers[1][0]["generated_text"] == "a"
    assert answers[2]["param"] == "inputs"
    assert answers[3][0]["generated_text"] == "a"


def test_more_lines_than_the_queue_holds_wait_for_a_place(start):
    server = start(FakeEngine(queue_limit=1), batch_parallel=3)
    line = json.dumps({"inputs": "a", "parameters": {"max_new_tokens": 1}})
    assert [answer[0]["generated_text"] for answer in post(server, [line] * 5)] == ["a"] * 5


def test_a_caller_that_leaves_stops_all_lines(start, wait_until):
    server = start(FakeEngine(step_s=0.01))
    line = json.dumps({"inputs": "ab", "parameters": {"max_new_tokens": 3000}})
    quick = json.dumps({"inputs": "a", "parameters": {"max_new_tokens": 1}})
    content = "\n".join([quick, line, line])
    with server.client.stream("POST", "/invocations", content=content, headers=LINES) as response:
        next(response.iter_raw())
    wait_until(lambda: all(handle.ended.is_set() for handle in server.engine.requests))
    assert max(handle.steps for handle in server.engine.requests) < 500
