"""A table that hangs, throttles or is not there costs a bounded delay and one attempt."""

import json
import time

import pytest

from specinfer_gateway.wiring import build


class Context:
    aws_request_id = "l"

    def get_remaining_time_in_millis(self):
        return 29_000


EVENT = {
    "path": "/generate",
    "httpMethod": "POST",
    "headers": {},
    "requestContext": {"requestId": "r"},
    "body": json.dumps({"inputs": "hi"}),
}


@pytest.fixture
def ask(sagemaker, table, monkeypatch):
    environment = {
        "SPECINFER_ENDPOINT": "specinfer",
        "SPECINFER_CACHE_TABLE": "cache",
        "SPECINFER_MODEL_REVISION": "r1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": sagemaker.url,
        "AWS_ENDPOINT_URL_DYNAMODB": table.url,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    handler = build(environment)

    def ask():
        started = time.monotonic()
        answer = handler(EVENT, Context())
        return answer, time.monotonic() - started

    return ask


FAULTS = {
    "hangs": lambda table: table.hang,
    "drops": lambda table: table.drop,
    "throttles": lambda table: table.fail(400, "ProvisionedThroughputExceededException"),
    "denies": lambda table: table.fail(400, "AccessDeniedException"),
    "fails": lambda table: table.fail(500, "InternalServerError"),
    "missing": lambda table: table.fail(400, "ResourceNotFoundException"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_answer_comes_all_the_same(ask, table, sagemaker, fault):
    table.behave = FAULTS[fault](table)
    answer, seconds = ask()
    assert answer["statusCode"] == 200
    assert answer["multiValueHeaders"]["X-Cache"] == ["BYPASS"]
    assert seconds < 2.0
    assert len(table.posts) == 1
    assert len(sagemaker.posts) == 1
    again, seconds = ask()
    assert again["statusCode"] == 200
    assert seconds < 0.4, "the broken table was waited for again"
    assert len(table.posts) == 1
