"""Who may call: keys in two headers, rotation without downtime, a secret store that fails."""

import hashlib
import json

import pytest
from botocore.exceptions import EndpointConnectionError

from specinfer_gateway.api_keys import ApiKeys

BODY = {"inputs": "hi"}


class Secret:
    """A secret that a test can change, counting its reads."""

    def __init__(self, *keys):
        self.reads = 0
        self.set(*keys)

    def set(self, *keys):
        entries = [
            {"name": key, "sha256": hashlib.sha256(key.encode()).hexdigest()} for key in keys
        ]
        self.text = json.dumps({"keys": entries})

    def __call__(self):
        self.reads += 1
        if self.text is None:
            raise EndpointConnectionError(endpoint_url="https://secretsmanager")
        return self.text


@pytest.fixture
def secret(caller):
    secret = Secret("old")
    caller.keys = ApiKeys(secret, max_age=300, clock=caller.clock)
    return secret


def status(caller, key, header="x-api-key"):
    return caller.post("/generate", BODY, {header: key}).status


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "missing_api_key"),
        ({"X-Api-Key": ""}, "missing_api_key"),
        ({"Authorization": "Bearer"}, "missing_api_key"),
        ({"Authorization": "Basic b2xk"}, "missing_api_key"),
        ({"x-api-key": "wrong"}, "invalid_api_key"),
        ({"Authorization": "Bearer wrong"}, "invalid_api_key"),
    ],
)
def test_without_a_valid_key_there_is_a_401_and_no_generation(caller, secret, headers, code):
    reply = caller.post("/v1/chat/completions", {}, headers)
    assert (reply.status, reply.json["error"]["code"]) == (401, code)
    assert reply.json["error"]["type"] == "authentication_error"
    assert caller.runtime.calls == []


@pytest.mark.parametrize(
    ("header", "value"),
    [("x-api-key", "old"), ("X-API-KEY", "old"), ("authorization", "bearer old")],
)
def test_a_key_is_taken_from_either_header(caller, secret, header, value):
    assert status(caller, value, header) == 200


def test_keys_rotate_without_downtime(caller, secret):
    assert status(caller, "old") == 200
    caller.clock.seconds += 20
    secret.set("old", "new")
    assert [status(caller, "new"), status(caller, "old")] == [200, 200]
    secret.set("new")
    caller.clock.seconds += 301
    assert [status(caller, "new"), status(caller, "old")] == [200, 401]


def test_guessing_does_not_run_up_reads_of_the_secret(caller, secret):
    assert {status(caller, f"guess-{i}") for i in range(20)} == {401}
    assert secret.reads == 1


def test_known_keys_stay_valid_while_the_secret_cannot_be_read(caller, secret):
    assert status(caller, "old") == 200
    secret.text = None
    caller.clock.seconds += 1_000
    assert [status(caller, "old"), status(caller, "wrong")] == [200, 401]


@pytest.mark.parametrize("text", [None, "not json", "[]", '{"keys": [{"name": "a"}]}'])
def test_with_no_keys_read_at_all_the_answer_is_a_503(caller, secret, text):
    secret.text = text
    reply = caller.post("/generate", BODY, {"x-api-key": "old"})
    assert (reply.status, reply.json["code"]) == (503, "keys_unavailable")
    assert reply.headers["Retry-After"] == "5"


def test_health_and_the_document_need_no_key(caller, secret):
    assert caller.send(caller.event("GET", "/health")).status == 200
    assert caller.send(caller.event("GET", "/openapi.json")).status == 200
