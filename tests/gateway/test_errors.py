"""Every failure of the endpoint, told as what it is, once, and never kept."""

import json

import pytest

BODY = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
LOG = "See https://us-east-1.console.aws.amazon.com/cloudwatch/home for account 123456789012."
REFUSED = json.dumps(
    {"error": {"message": "5 tokens exceed 4", "code": "context_length_exceeded", "param": "m"}}
)

FAULTS = [
    ("ModelError", LOG, {"OriginalStatusCode": 400, "OriginalMessage": REFUSED}, 400,
     "context_length_exceeded", None),
    ("ModelError", LOG, {"OriginalStatusCode": 422, "OriginalMessage": "arn:aws:x"}, 422,
     "model_refused", None),
    ("ModelError", LOG, {"OriginalStatusCode": 429, "OriginalMessage": REFUSED}, 429,
     "context_length_exceeded", "1"),
    ("ModelError", LOG, {"OriginalStatusCode": 500}, 502, "model_error", None),
    ("ModelError", LOG, {"OriginalStatusCode": 0}, 502, "model_error", None),
    ("ModelNotReadyException", None, {}, 503, "model_not_ready", "5"),
    ("ThrottlingException", None, {}, 429, "rate_limit_exceeded", "1"),
    ("ValidationError", "Inference Component x has no capacity to process this request.", {},
     503, "scaling_from_zero", "120"),
    ("ValidationError", "Endpoint specinfer of account 123456789012 not found.", {},
     503, "endpoint_unavailable", "30"),
    ("ValidationError", "1 validation error detected", {}, 500, "internal", None),
    ("AccessDeniedException", "arn:aws:iam::123456789012:role/x", {}, 500, "internal", None),
    ("ServiceUnavailable", "", {}, 503, "upstream_unavailable", "5"),
    ("InternalFailure", "", {}, 502, "upstream_error", None),
    ("InternalDependencyException", "", {}, 502, "upstream_error", None),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "message", "more", "status", "code", "retry"), FAULTS)
def test_an_upstream_error_has_an_honest_status(caller, fault, message, more, status, code, retry):
    caller.runtime.fail(fault, message, **more)
    reply = caller.post("/v1/chat/completions", BODY)
    assert (reply.status, reply.json["error"]["code"]) == (status, code)
    assert reply.headers.get("Retry-After") == retry
    assert len(caller.runtime.calls) == 1
    assert caller.table.scan(TableName="cache")["Count"] == 0
    for secret in ("arn:", "123456789012", "https://"):
        assert secret not in reply.text


def test_a_dropped_connection_is_a_503(caller):
    from botocore.exceptions import ConnectionClosedError

    def drop(body):
        raise ConnectionClosedError(endpoint_url="http://x")

    caller.runtime.script = drop
    reply = caller.post("/v1/chat/completions", BODY)
    assert (reply.status, reply.json["error"]["code"]) == (503, "endpoint_unavailable")


def test_a_hung_model_is_a_504_at_the_deadline(caller):
    import threading

    release = threading.Event()

    def hang(body):
        release.wait(10)
        return b"[]"

    caller.runtime.script = hang
    caller.remaining_ms = 1_250
    reply = caller.post("/v1/chat/completions", BODY)
    release.set()
    assert (reply.status, reply.json["error"]["code"]) == (504, "timeout")
    assert caller.table.scan(TableName="cache")["Count"] == 0


def test_with_no_time_left_the_model_is_not_asked(caller):
    caller.remaining_ms = 900
    assert caller.post("/v1/chat/completions", BODY).status == 504
    assert caller.runtime.calls == []


def test_the_generate_route_tells_errors_as_tgi_does(caller):
    caller.runtime.fail("ThrottlingException", None)
    reply = caller.post("/generate", {"inputs": "hi"})
    assert reply.status == 429
    assert reply.json["error_type"] == "overloaded"
