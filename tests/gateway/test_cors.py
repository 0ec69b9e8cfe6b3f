"""Browsers see every answer, errors above all (aws/serverless-application-model#1178)."""

import pytest

ORIGIN = {"Origin": "https://app.example"}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/generate", {"inputs": "a"}, 200), ("/generate", {}, 422), ("/nowhere", {}, 404)],
)
def test_every_answer_has_the_header(caller, path, body, status):
    reply = caller.post(path, body, ORIGIN)
    assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (status, "*")
    exposed = reply.headers["Access-Control-Expose-Headers"]
    assert "X-Cache" in exposed
    assert "Retry-After" in exposed


def test_upstream_errors_have_it_too(caller):
    caller.runtime.fail("ServiceUnavailable")
    reply = caller.post("/generate", {"inputs": "a"}, ORIGIN)
    assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (503, "*")


def test_a_preflight_needs_no_key_and_allows_the_headers(caller):
    caller.keys = object()  # never asked
    headers = ORIGIN | {"Access-Control-Request-Method": "POST"}
    reply = caller.send(caller.event("OPTIONS", "/v1/chat/completions", None, headers))
    assert reply.status == 204
    allowed = reply.headers["Access-Control-Allow-Headers"]
    assert {"Authorization", "X-Api-Key", "Content-Type"} <= set(allowed.split(","))
    assert "POST" in reply.headers["Access-Control-Allow-Methods"]
