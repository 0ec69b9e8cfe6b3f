"""Bodies that nobody planned, streams cut anywhere: no 5xx, no hang, no leak."""

import json
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate

from specinfer.server.dialects.chat import ChatBody
from specinfer.server.dialects.tgi import Parameters, TgiBody
from specinfer.server.sse import Framing
from specinfer.testing.fake_engine import FakeEngine

FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NAMES = st.sampled_from(
    [*TgiBody.model_fields, *Parameters.model_fields, *ChatBody.model_fields, "prompt"]
    + ["role", "content", "type", "text", "n", "include_usage"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "system", "text"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)
PARAMETERS = st.dictionaries(NAMES, SCALARS | st.lists(st.text(max_size=3), max_size=5), max_size=4)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "x"]), "content": JSON}),
    max_size=3,
)
BODIES = (
    st.fixed_dictionaries({"inputs": st.text(max_size=20), "parameters": PARAMETERS})
    | st.builds(lambda m, p: {"messages": m} | p, MESSAGES, PARAMETERS)
    | st.builds(lambda m, p: {"prompt": m} | p, JSON, PARAMETERS)
    | JSON
)


@FUZZ
@given(body=BODIES)
def test_any_json_body_gets_an_answer_or_a_named_error(server, body):
    response = server.client.post("/invocations", content=json.dumps(body))
    assert response.status_code in {200, 400, 422}, response.text
    if response.status_code != 200:
        document = response.json()
        assert document.get("param") or document["error"]["param"]


@FUZZ
@given(content=st.binary(max_size=60))
def test_any_bytes_get_an_answer_or_an_error(server, content):
    assert server.client.post("/invocations", content=content).status_code in {400, 422}


@FUZZ
@given(text=st.text(min_size=1, max_size=30), size=st.integers(1, 40), tokens=st.integers(1, 60))
def test_a_stream_read_in_parts_of_any_size_is_the_whole_text(server, text, size, tokens):
    body = {"inputs": text, "parameters": {"max_new_tokens": tokens}}
    whole = server.post(body).json()[0]["generated_text"]
    raw = server.post(body | {"stream": True}).content
    parts = [raw[at : at + size].decode("ascii") for at in range(0, len(raw), size)]
    events = [json.loads(line[6:]) for line in "".join(parts).splitlines() if line]
    assert "".join(event["token"]["text"] for event in events) == whole
    assert events[-1]["generated_text"] == whole


@given(st.dictionaries(st.text(), st.text()), st.sampled_from(["sse", "jsonlines"]))
def test_an_event_is_ascii_and_closed_by_a_newline(document, kind):
    event = Framing(kind).event(document)
    assert event.isascii()
    assert event.endswith("\n")
    assert json.loads(event.removeprefix("data: ")) == document


def test_the_openapi_document_is_valid_and_names_the_dialects(server):
    document = server.client.get("/openapi.json").json()
    validate(document)
    body = document["paths"]["/invocations"]["post"]["requestBody"]
    kinds = body["content"]["application/json"]["schema"]["oneOf"]
    assert [kind["$ref"].rpartition("/")[2] for kind in kinds] == [
        "ChatBody",
        "CompletionBody",
        "TgiBody",
    ]


@pytest.mark.slow
def test_memory_stays_flat_over_2000_requests_with_cancels(start, wait_until):
    server = start(FakeEngine(step_s=0.001))
    body = {"inputs": "soak ", "parameters": {"max_new_tokens": 60}, "stream": True}

    def soak(count):
        for number in range(count):
            with server.client.stream("POST", "/invocations", json=body) as response:
                if number % 3:
                    response.read()
                else:
                    next(response.iter_raw())
        wait_until(lambda: server.engine.running == 0)
        server.engine.requests.clear()

    soak(200)
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        soak(1800)
        grown = tracemalloc.take_snapshot().compare_to(before, "filename")
    finally:
        tracemalloc.stop()
    assert sum(entry.size_diff for entry in grown) < 2 << 20
