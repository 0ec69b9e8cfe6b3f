"""No prompt, key, ARN or account ever reaches a log line, a figure or an error document."""

import hashlib
import io
import json

import pytest
from aws_lambda_powertools import Logger

from specinfer_gateway.api_keys import ApiKeys
from specinfer_gateway.app import build_app
from specinfer_gateway.meter import EmfMeter
from specinfer_gateway.report import Reporter
from specinfer_gateway.shield import Shield

PROMPT, KEY, ANSWER = "canary-prompt-3f9a", "canary-key-77b1", "canary-answer-5c02"


class Context:
    aws_request_id = "l"

    def get_remaining_time_in_millis(self):
        return 29_000


@pytest.fixture
def lines(caller, capsys):
    """Send an event through everything that logs; return the log and the answer."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    secret = json.dumps({"keys": [{"name": "alice", "sha256": digest}]})
    caller.keys = ApiKeys(lambda: secret, 300, caller.clock)
    caller.meter = EmfMeter("SpecInfer", "gateway")

    def send(event):
        stream = io.StringIO()
        # Loggers of one name share the first one's stream.
        log = Logger(service=f"gateway-{id(stream)}", level="DEBUG", stream=stream)
        reporter = Reporter(log, caller.meter)
        shield = Shield(build_app(caller.gateway, reporter.fault), reporter, caller.jobs, "*")
        answer = shield(event, Context())
        return stream.getvalue() + capsys.readouterr().out, answer

    return send


def event(caller, body, path="/v1/chat/completions", key=KEY):
    return caller.event("POST", path, json.dumps(body), {"Authorization": f"Bearer {key}"})


CHAT = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0}


def boom(body):
    raise RuntimeError(f"{PROMPT} at arn:aws:sagemaker:us-east-1:123456789012:endpoint/x")


def test_an_answered_request_leaves_numbers_only(caller, lines):
    caller.runtime.script = lambda body: caller.runtime.chat(ANSWER)
    log, answer = lines(event(caller, CHAT))
    assert answer["statusCode"] == 200
    for canary in (PROMPT, KEY, ANSWER):
        assert canary not in log
    line, figures = (json.loads(text) for text in log.splitlines())
    assert (line["request_id"], line["status"], line["cache"]) == ("gateway-1", 200, "MISS")
    assert figures["CacheMiss"] == [1.0]
    assert figures["AcceptedTokensPerStep"] == [1.5]
    assert figures["GeneratedTokens"] == [5.0]
    assert figures["route"] == "/v1/chat/completions"
    names = {m["Name"] for m in figures["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
    assert {"TotalLatency", "InvokeLatency", "TokensPerSecond"} <= names


@pytest.mark.parametrize(
    ("body", "script"),
    [
        (CHAT | {"max_tokens": PROMPT}, None),
        ({"messages": PROMPT}, None),
        ({"messages": [{"role": PROMPT, "content": "a"}]}, None),
        (CHAT, boom),
    ],
)
def test_a_failed_request_quotes_nothing_either(caller, lines, body, script):
    caller.runtime.script = script
    log, answer = lines(event(caller, body))
    assert answer["statusCode"] >= 400
    for canary in (PROMPT, KEY, "arn:aws", "123456789012"):
        assert canary not in log
        assert canary not in answer["body"]


def test_an_unexpected_fault_is_located_in_the_log(caller, lines):
    caller.runtime.script = boom
    log, answer = lines(event(caller, CHAT))
    assert answer["statusCode"] == 500
    fault = json.loads(log.splitlines()[0])
    assert fault["fault"] == "RuntimeError"
    assert "test_privacy.py" in fault["where"]


def test_a_refusal_by_aws_is_loud_in_the_log_and_hidden_from_the_caller(caller, lines):
    caller.runtime.fail("AccessDeniedException", "User arn:aws:iam::123456789012:role/x may not")
    log, answer = lines(event(caller, CHAT))
    fault = json.loads(log.splitlines()[0])
    assert (fault["level"], fault["aws"]) == ("ERROR", "AccessDeniedException")
    assert "123456789012" not in log + answer["body"]
    assert "AccessDenied" not in answer["body"]


def test_a_wrong_key_is_not_logged(caller, lines):
    log, answer = lines(event(caller, CHAT, key="canary-wrong"))
    assert answer["statusCode"] == 401
    assert "canary-wrong" not in log + answer["body"]


@pytest.mark.parametrize(
    "strange", [{}, {"path": None}, {"httpMethod": "POST", "path": "/generate"}]
)
def test_a_strange_event_is_a_500_or_4xx_with_an_id(caller, lines, strange):
    _, answer = lines(strange)
    assert answer["statusCode"] >= 400
    assert answer["multiValueHeaders"]["X-Request-Id"] == ["l"]
    json.loads(answer["body"])
