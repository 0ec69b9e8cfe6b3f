"""Gateway and container agree: the real server's answers, refusals and streams, end to end.

They share no code, so this is where a change of one side's documents is noticed.
"""

import json
import time

import pytest
from botocore.exceptions import ClientError
from fastapi.testclient import TestClient

from specinfer.server.app import create_app
from specinfer.server.run import build_service
from specinfer.server.settings import ServerSettings
from specinfer.testing.fake_engine import FakeEngine
from specinfer_gateway.app import build_app
from specinfer_gateway.dialects import CHAT, COMPLETIONS, DIALECTS, GENERATE
from specinfer_gateway.report import Reporter
from specinfer_gateway.shield import Shield
from specinfer_gateway.stream_app import StreamApp

BODIES = {
    CHAT: {"messages": [{"role": "user", "content": "hello"}], "temperature": 0},
    COMPLETIONS: {"prompt": "hello", "temperature": 0},
    GENERATE: {"inputs": "hello"},
}
ROUTES = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@pytest.fixture(scope="module")
def engine():
    return FakeEngine(max_context=64)


@pytest.fixture(scope="module")
def container(engine):
    service = build_service(ServerSettings(), lambda: engine)
    with TestClient(create_app(service)) as client:
        deadline = time.monotonic() + 10
        while client.get("/ping").status_code != 200:
            assert time.monotonic() < deadline
        yield client
    service.tokenisers.shutdown()
    service.compilers.shutdown()


@pytest.fixture
def runtime(caller, container):
    """SageMaker's part: pass a body on, put a refusal into a ModelError, cut a stream anywhere."""

    def invoke(body):
        answer = container.post("/invocations", json=body)
        if answer.status_code != 200:
            told = {"OriginalStatusCode": answer.status_code, "OriginalMessage": answer.text}
            error = {"Error": {"Code": "ModelError", "Message": "see the account's log"}}
            raise ClientError(error | told, "InvokeEndpoint")
        if body.get("stream"):
            pieces = [answer.content[i : i + 7] for i in range(0, len(answer.content), 7)]
            caller.runtime.events = Parts({"PayloadPart": {"Bytes": piece}} for piece in pieces)
        return answer.content

    caller.runtime.script = invoke
    return caller


class Parts(list):
    def close(self): ...


@ROUTES
def test_an_answer_comes_through_is_kept_and_counted(runtime, dialect):
    first, second = (runtime.post(dialect.route, BODIES[dialect]) for _ in range(2))
    assert [first.status, second.status] == [200, 200], first.text
    assert [first.headers["X-Cache"], second.headers["X-Cache"]] == ["MISS", "HIT"]
    assert dialect.speculation(first.json)["tokens_per_step"] > 0
    assert runtime.meter.total("GeneratedTokens") > 0
    assert runtime.meter.total("DraftedTokens") >= runtime.meter.total("AcceptedTokens")


@ROUTES
def test_a_prompt_beyond_the_context_is_a_4xx_with_both_numbers(runtime, dialect):
    text = "x" * 100
    body = {
        CHAT: {"messages": [{"role": "user", "content": text}]},
        COMPLETIONS: {"prompt": text},
        GENERATE: {"inputs": text},
    }[dialect]
    reply = runtime.post(dialect.route, body)
    assert reply.status == dialect.invalid
    assert "64" in reply.text
    assert "context_length_exceeded" in reply.text


@ROUTES
def test_a_parameter_that_the_engine_lacks_is_refused_by_name(runtime, dialect):
    name = "watermark" if dialect is GENERATE else "structural_tag"
    value = True if dialect is GENERATE else {"structures": []}
    more = {"parameters": {name: value}} if dialect is GENERATE else {name: value}
    reply = runtime.post(dialect.route, BODIES[dialect] | more)
    assert reply.status == dialect.invalid
    assert name in reply.text


@ROUTES
@pytest.mark.parametrize("names", [("b", "a"), ("a", "b")])
def test_a_schema_reaches_the_engine_with_its_properties_in_order(runtime, engine, dialect, names):
    """An answer follows that order; sorted keys, which a cache key wants, would change it."""
    schema = {"type": "object", "properties": {name: {"const": 1.0} for name in names}}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    tgi = {"parameters": {"grammar": {"type": "json", "value": schema}}}
    more = tgi if dialect is GENERATE else {"response_format": form}
    assert runtime.post(dialect.route, BODIES[dialect] | more).status == 200
    grammar = engine.requests[-1].request.params.grammar
    assert json.loads(grammar.text) == schema
    assert list(json.loads(grammar.text)["properties"]) == list(names)
    assert "1.0" in grammar.text


@ROUTES
def test_a_form_that_cannot_be_is_refused_by_name(runtime, dialect):
    bad = {"type": "regex", "value": "("}
    more = {"parameters": {"grammar": bad}} if dialect is GENERATE else {"guided_regex": "("}
    reply = runtime.post(dialect.route, BODIES[dialect] | more)
    assert reply.status == dialect.invalid
    assert ("parameters.grammar.value" if dialect is GENERATE else "guided_regex") in reply.text


@ROUTES
def test_a_stream_comes_through_whole(runtime, dialect):
    class Context:
        def get_remaining_time_in_millis(self):
            return 60_000

    class Log:
        def info(self, msg, /, *, extra): ...

    runtime.meter.flush = lambda route: None
    reporter = Reporter(Log(), runtime.meter)
    shield = Shield(build_app(runtime.gateway, reporter.fault), reporter, None, "*")
    app = StreamApp(runtime.gateway, shield, reporter)
    body = json.dumps(BODIES[dialect] | {"stream": True})
    streamed = app(runtime.event("POST", dialect.route, body), Context())
    text = b"".join(streamed.parts)
    assert streamed.metadata["statusCode"] == 200
    assert b'"error"' not in text
    assert text.endswith(b"\n\n")
    assert text.count(b"data:") > 3


def test_bounds_the_gateway_lets_through_the_container_lets_through_too(runtime):
    edges = {"temperature": 100, "top_p": 1, "top_k": -1, "seed": 2**63 - 1, "max_tokens": 8}
    reply = runtime.post(CHAT.route, BODIES[CHAT] | edges | {"stop": ["x" * 256] * 4})
    assert reply.status == 200, reply.text
