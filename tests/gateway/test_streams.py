"""Streams: passed on whole whatever the cuts, their failures told in the stream."""

import json

import pytest
from botocore.exceptions import EventStreamError
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import ProtocolError

from specinfer_gateway.app import build_app
from specinfer_gateway.report import Reporter
from specinfer_gateway.shield import Shield
from specinfer_gateway.stream_app import StreamApp, whole_events

TEXT = "日本語 🙂 done"
CHAT = {"messages": [{"role": "user", "content": "hi"}], "stream": True}


def sse(*documents):
    return b"".join(b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents)


CHUNKS = sse(*({"choices": [{"delta": {"content": letter}}]} for letter in TEXT))
WHOLE_CHAT = CHUNKS + b"data: [DONE]\n\n"
TGI_TOKEN = {"token": {"text": "a"}, "generated_text": None, "details": None}
TGI_LAST = {"token": {"text": "b"}, "generated_text": "ab", "details": {"finish_reason": "length"}}


class Parts(list):
    """An event stream as boto3 gives it."""

    closed = False

    def __iter__(self):
        for event in super().__iter__():
            if isinstance(event, Exception):
                raise event
            yield event

    def close(self):
        self.closed = True


class Log:
    def __init__(self):
        self.lines = []

    def info(self, msg, /, *, extra):
        self.lines.append(extra)

    error = info


def parts(body, size):
    cut = [body[i : i + size] for i in range(0, len(body), size)]
    return Parts({"PayloadPart": {"Bytes": piece}} for piece in cut)


@pytest.fixture
def stream(caller):
    """Send a body, get status, headers and the list of events."""
    caller.meter.flush = lambda route: None
    log = Log()

    def send(path, body, headers=None):
        gateway, reporter = caller.gateway, Reporter(log, caller.meter, caller.clock)
        app = StreamApp(
            gateway, Shield(build_app(gateway, reporter.fault), reporter, None, "*"), reporter
        )
        event = caller.event("POST", path, json.dumps(body), headers)
        streamed = app(event, Context())
        return streamed.metadata, list(streamed.parts)

    send.log = log
    return send


class Context:
    aws_request_id = "l"

    def get_remaining_time_in_millis(self):
        return 60_000


@given(st.integers(min_value=1, max_value=len(WHOLE_CHAT)))
def test_events_come_out_whole_for_every_cut(size):
    pieces = [WHOLE_CHAT[i : i + size] for i in range(0, len(WHOLE_CHAT), size)]
    out = list(whole_events(iter(pieces)))
    assert b"".join(out) == WHOLE_CHAT
    assert all(piece.endswith(b"\n\n") and piece.startswith(b"data:") for piece in out)


def test_a_stream_without_its_last_newline_is_given_one():
    out = list(whole_events(iter([b"data: 1\n\n", b"data: 2"])))
    assert out == [
        b"data: 1\n\n",
        b"data: 2\n\n",
    ]


def test_a_chat_is_streamed(caller, stream):
    caller.runtime.events = parts(WHOLE_CHAT, 7)
    metadata, events = stream("/v1/chat/completions", CHAT)
    assert metadata["statusCode"] == 200
    assert metadata["headers"]["Content-Type"] == "text/event-stream"
    assert metadata["headers"]["X-Request-Id"] == "gateway-1"
    assert b"".join(events) == WHOLE_CHAT
    assert len(events) > 5
    assert caller.runtime.events.closed
    assert json.loads(caller.runtime.calls[0]["Body"])["stream"] is True
    assert caller.table.scan(TableName="cache")["Count"] == 0
    assert [line["status"] for line in stream.log.lines] == [200]


def test_generate_is_streamed(caller, stream):
    body = sse(TGI_TOKEN, TGI_LAST)
    caller.runtime.events = parts(body, 9)
    assert b"".join(stream("/generate", {"inputs": "a", "stream": True})[1]) == body


def stream_error(code, message=""):
    return EventStreamError({"Error": {"Code": code, "Message": message}}, "InvokeEndpoint")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (stream_error("ModelStreamError", "Your invocation timed out"), "timeout"),
        (stream_error("ModelStreamError"), "stream_broken"),
        (stream_error("InternalStreamFailure"), "stream_broken"),
        (ProtocolError("connection broken"), "stream_broken"),
        (None, "stream_broken"),
    ],
)
def test_a_failure_in_mid_stream_is_an_event_and_no_done(caller, stream, error, code):
    caller.runtime.events = parts(CHUNKS[:-9], 40)
    if error:
        caller.runtime.events.append(error)
    metadata, events = stream("/v1/chat/completions", CHAT)
    assert metadata["statusCode"] == 200
    last = b"".join(events).split(b"\n\n")[-2]
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == code
    assert b"[DONE]" not in b"".join(events)


def test_a_generate_stream_cut_short_is_told_in_tgis_words(caller, stream):
    caller.runtime.events = parts(sse(TGI_TOKEN), 100)
    events = stream("/generate", {"inputs": "a", "stream": True})[1]
    assert json.loads(events[-1].removeprefix(b"data: "))["error_type"] == "generation"


def test_the_containers_own_error_event_is_not_told_twice(caller, stream):
    caller.runtime.events = parts(CHUNKS + sse({"error": {"message": "x"}}), 1000)
    events = stream("/v1/chat/completions", CHAT)[1]
    assert b"".join(events).count(b'"error"') == 1


def test_a_failure_before_the_first_event_has_its_own_status(caller, stream):
    caller.runtime.fail("ThrottlingException")
    metadata, events = stream("/v1/chat/completions", CHAT)
    assert metadata["statusCode"] == 429
    assert metadata["multiValueHeaders"]["Retry-After"] == ["1"]
    assert json.loads(events[0])["error"]["code"] == "rate_limit_exceeded"


def test_a_faulty_body_and_a_missing_key_have_their_status(caller, stream):
    assert stream("/v1/chat/completions", {"stream": True})[0]["statusCode"] == 400
    assert stream("/generate", {"stream": True})[0]["statusCode"] == 422


def test_what_asks_for_no_stream_is_answered_whole(caller, stream):
    metadata, events = stream("/generate", {"inputs": "a"})
    assert metadata["statusCode"] == 200
    assert metadata["multiValueHeaders"]["X-Cache"] == ["MISS"]
    assert len(events) == 1
    assert json.loads(events[0])["generated_text"] == "an answer"
