"""The container contract: health, dispatch, back-pressure, deadlines, callers that leave."""

import threading
import time

import httpx
import pytest

from specinfer.errors import ModelFolderError
from specinfer.testing.fake_engine import FakeEngine

LONG = {"inputs": "ab", "parameters": {"max_new_tokens": 1500}}


def test_ping_says_503_while_loading_then_200(start, wait_until):
    loaded = threading.Event()

    def load():
        loaded.wait()
        return FakeEngine()

    server = start(load=load, ready=False)
    try:
        assert server.client.get("/ping").status_code == 503
        refused = server.post({"inputs": "a"})
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
    finally:
        loaded.set()
    wait_until(lambda: server.client.get("/ping").status_code == 200)
    assert server.client.post("/ping").content == b""


def test_ping_says_500_once_loading_has_failed(start, wait_until):
    def load():
        raise ModelFolderError("no such folder")

    server = start(load=load, ready=False)
    wait_until(lambda: server.client.get("/ping").status_code == 500)
    assert server.post({"messages": [{"role": "user", "content": "x"}]}).status_code == 500


def test_ping_says_500_once_the_engine_is_dead(start):
    server = start()
    server.engine.alive = False
    assert server.client.get("/ping").status_code == 500
    assert server.post({"inputs": "a"}).status_code == 500


def test_ping_answers_within_250_ms_under_8_generations(start, wait_until):
    server = start(FakeEngine(step_s=0.01))
    threads = [threading.Thread(target=server.post, args=(LONG,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.engine.running == 8)
    began = time.perf_counter()
    assert server.client.get("/ping").status_code == 200
    assert time.perf_counter() - began < 0.25
    for handle in server.engine.requests:
        handle.cancel()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, "none of them"),
        ({"input": "x"}, "none of them"),
        ({"inputs": "x", "messages": []}, "messages and inputs"),
    ],
)
def test_a_body_of_no_dialect_or_two_names_the_keys(server, body, found):
    response = server.post(body)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert "messages, prompt, inputs" in message
    assert found in message


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"null", b'{"inputs": NaN}', b"[" * 100_000],
)
def test_what_is_not_a_json_object_is_400(server, content):
    response = server.client.post("/invocations", content=content)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "body"


def test_a_body_over_the_limit_is_413(start):
    server = start(max_body_bytes=100)
    response = server.post({"inputs": "x" * 200})
    assert response.status_code == 413
    assert "100 bytes" in response.json()["error"]["message"]


def test_a_full_queue_is_429_with_retry_after(start):
    server = start(FakeEngine(queue_limit=0))
    response = server.post({"inputs": "x"})
    assert response.status_code == 429
    assert response.json()["error_type"] == "overloaded"
    assert int(response.headers["retry-after"]) >= 1
    streamed = server.post({"messages": [{"role": "user", "content": "x"}], "stream": True})
    assert streamed.status_code == 429


def test_requests_beyond_the_servers_own_limit_are_429_but_ping_is_not(start, wait_until):
    server = start(FakeEngine(step_s=0.01), max_inflight=1)
    thread = threading.Thread(target=server.post, args=(LONG,))
    thread.start()
    wait_until(lambda: server.engine.running == 1)
    assert server.post({"inputs": "x"}).status_code == 429
    assert server.client.get("/ping").status_code == 200
    server.engine.requests[0].cancel()
    thread.join()


def test_deadline_returns_the_text_so_far(start, wait_until):
    server = start(FakeEngine(step_s=0.02), deadline_s=0.3)
    (answer,) = server.post(LONG).json()
    details = answer["details"]
    assert details["finish_reason"] == "length"
    assert details["truncated_by"] == "deadline"
    assert 0 < details["generated_tokens"] < 100
    assert answer["generated_text"].startswith("aba")
    wait_until(lambda: server.engine.running == 0)


def test_deadline_before_the_first_token_is_503(start):
    server = start(FakeEngine(step_s=30), deadline_s=0.1)
    response = server.post(LONG)
    assert response.status_code == 503
    assert response.json()["code"] == "deadline_exceeded"


def test_an_engine_that_fails_is_500_and_an_event_in_a_stream(start):
    server = start(FakeEngine(fail_at_step=2))
    response = server.post(LONG)
    assert response.status_code == 500
    assert response.json()["code"] == "generation_failed"
    assert "planned" not in response.text
    streamed = server.post({"messages": [{"role": "user", "content": "x"}], "stream": True})
    assert streamed.status_code == 200
    assert '"code":"generation_failed"' in streamed.text
    assert streamed.text.endswith("\n\n")
    assert "[DONE]" not in streamed.text


def test_an_engine_that_dies_in_silence_is_500(start):
    server = start(FakeEngine(die_at_step=2))
    response = server.post(LONG)
    assert response.status_code == 500
    assert response.json()["code"] == "engine_dead"


def test_an_engine_that_can_be_replaced_is_503_until_it_is(start, wait_until):
    first, second = FakeEngine(lose_at_step=2), FakeEngine()
    engines, may_load = iter((first, second)), threading.Event()

    def load():
        engine = next(engines)
        if engine is second:
            may_load.wait(10)
        return engine

    server = start(load=load, replaces=True)
    answer = server.post(LONG)
    wait_until(lambda: not first.alive)
    assert server.client.get("/ping").status_code == 503
    refused = server.post(LONG)
    assert answer.status_code == refused.status_code == 503
    assert answer.json()["code"] == "engine_restarting"
    assert refused.json()["error"]["code"] == "engine_restarting"
    assert refused.headers["retry-after"] == "5"
    may_load.set()
    wait_until(lambda: server.client.get("/ping").status_code == 200)
    assert server.post({"inputs": "ab"}).status_code == 200


def test_a_caller_that_leaves_stops_the_generation(start, wait_until):
    server = start(FakeEngine(step_s=0.01))
    with pytest.raises(httpx.ReadTimeout):
        server.post(LONG, timeout=0.2)
    (handle,) = server.engine.requests
    wait_until(handle.ended.is_set, "the end of the generation")
    assert handle.steps < 100


def test_a_caller_that_leaves_a_stream_stops_the_generation(start, wait_until):
    server = start(FakeEngine(step_s=0.01))
    with server.client.stream("POST", "/invocations", json=LONG | {"stream": True}) as response:
        next(response.iter_raw())
    (handle,) = server.engine.requests
    wait_until(handle.ended.is_set, "the end of the generation")
    assert handle.steps < 100


def test_models_lists_the_one_there_is(server):
    (model,) = server.client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("fake", "model")
    assert model["revision"] == "fake-revision"


def test_execution_parameters_suit_batch_transform(server):
    limits = server.client.get("/execution-parameters").json()
    assert limits.keys() == {"MaxConcurrentTransforms", "BatchStrategy", "MaxPayloadInMB"}


def test_unknown_paths_and_methods_are_error_documents(server):
    assert server.client.get("/nowhere").json()["error"]["code"] == "not_found"
    wrong = server.client.get("/invocations")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")


TRICKY = "日本語 🙂 done é"


@pytest.mark.parametrize("length", [1, 2, 5, 9, 22])
def test_stream_is_ascii_never_broken_and_equal_to_the_whole(server, length):
    body = {"inputs": TRICKY, "parameters": {"max_new_tokens": length}}
    whole = server.post(body).json()[0]["generated_text"]
    raw = server.post(body | {"stream": True}).content
    assert raw.isascii()
    assert raw.endswith(b"\n")
    assert TRICKY.startswith(whole) or whole.startswith(TRICKY)
    chat = {"messages": [{"role": "user", "content": TRICKY}], "max_tokens": length}
    assert server.post(chat).json()["choices"][0]["message"]["content"] == whole


def test_json_lines_only_for_those_who_name_them(server):
    body = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 4}}
    lines = server.post(body, headers={"Accept": "application/jsonlines"})
    assert lines.headers["content-type"].startswith("application/jsonlines")
    assert lines.text.startswith("{")
    assert lines.text.endswith("}\n")
    assert server.post(body, headers={"Accept": "application/json"}).text.startswith("data: ")
