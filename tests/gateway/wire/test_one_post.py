"""boto3 re-sends by default what timed out, was throttled or dropped: here nothing ever is."""

import json
import threading

import pytest

from specinfer_gateway.clients import Clients
from specinfer_gateway.deadline import Deadline
from specinfer_gateway.endpoint import Endpoint
from specinfer_gateway.errors import GatewayError

BODY = b'{"inputs": "hi"}'


@pytest.fixture
def endpoint(sagemaker, monkeypatch):
    for name, value in {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": sagemaker.url,
    }.items():
        monkeypatch.setenv(name, value)
    return Endpoint(Clients().runtime, "specinfer")


def deadline(seconds):
    import time

    return Deadline.after(seconds, time.monotonic)


FAULTS = [
    ("hang", 504),
    ("drop", 503),
    (("fail", 503, "ServiceUnavailable"), 503),
    (("fail", 400, "ThrottlingException"), 429),
    (("fail", 429, "ModelNotReadyException"), 503),
    (("fail", 424, "ModelError", 500), 502),
    (("fail", 424, "ModelError", 400), 400),
    (("fail", 400, "ValidationError"), 500),
    (("fail", 500, "InternalFailure"), 502),
    (("fail", 530, "InternalDependencyException"), 502),
]


@pytest.mark.parametrize(("fault", "status"), FAULTS, ids=str)
@pytest.mark.parametrize("method", ["invoke", "stream"])
def test_one_request_is_one_post(sagemaker, endpoint, fault, status, method):
    if isinstance(fault, str):
        sagemaker.behave = getattr(sagemaker, fault)
    else:
        _, code, kind, *original = fault
        members = {"OriginalStatusCode": original[0]} if original else {}
        sagemaker.behave = sagemaker.fail(code, kind, **members)
    with pytest.raises(GatewayError) as caught:
        list(getattr(endpoint, method)(BODY, deadline(0.5)))
    assert caught.value.status == status
    sagemaker.release.set()
    assert len(sagemaker.posts) == 1


def test_a_deadline_is_kept_though_the_clients_time_out_is_longer(sagemaker, endpoint):
    import time

    sagemaker.behave = sagemaker.hang
    started = time.monotonic()
    with pytest.raises(GatewayError, match="in time"):
        endpoint.invoke(BODY, deadline(0.3))
    assert time.monotonic() - started < 1.5


def test_a_trickling_answer_does_not_outlast_the_deadline(sagemaker, endpoint):
    """A read time-out alone would never fire: every byte starts it anew."""

    def trickle(http, body):
        http.send_response(200)
        http.send_header("Content-Length", "1000")
        http.end_headers()
        while not sagemaker.release.wait(0.05):
            http.wfile.write(b" ")

    sagemaker.behave = trickle
    with pytest.raises(GatewayError, match="in time"):
        endpoint.invoke(BODY, deadline(0.5))
    sagemaker.release.set()


def test_answers_and_the_trace_travel(sagemaker, endpoint):
    answer = endpoint.invoke(BODY, deadline(5), "00-1-2-01")
    assert json.loads(answer)[0]["generated_text"] == "an answer"
    headers = {name.lower(): value for name, value in sagemaker.posts[0].headers.items()}
    assert headers["x-amzn-sagemaker-custom-attributes"] == "traceparent=00-1-2-01"
    assert threading.active_count() < 20


@pytest.mark.parametrize("method", ["invoke", "stream"])
def test_a_component_is_named(sagemaker, endpoint, method):
    named = Endpoint(endpoint.client, "specinfer", "component-1")
    sagemaker.behave = sagemaker.fail(400, "ThrottlingException")
    with pytest.raises(GatewayError):
        getattr(named, method)(BODY, deadline(5))
    headers = {name.lower(): value for name, value in sagemaker.posts[0].headers.items()}
    assert headers["x-amzn-sagemaker-inference-component"] == "component-1"
