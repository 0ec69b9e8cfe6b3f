"""Sections reach a daemon on loopback; the container's phases lie inside the invocation."""

import json
import socket

import pytest

from specinfer_gateway.tracing import XRayTracer, daemon

TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
BODY = {"inputs": "hi"}
PHASES = {"queue_ms": 1, "prefill_ms": 20.5, "ssm_ms": 30, "verify_ms": 40, "commit_ms": 2}


@pytest.fixture
def segments():
    """The daemon: a function that reads what it has been sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        udp.settimeout(5)

        def read(count):
            datagrams = [udp.recv(65_536).split(b"\n") for _ in range(count)]
            assert all(json.loads(head)["format"] == "json" for head, _ in datagrams)
            return [json.loads(body) for _, body in datagrams]

        read.address = f"127.0.0.1:{udp.getsockname()[1]}"
        yield read


def traced(caller, segments, trace=TRACE):
    send = daemon({"AWS_XRAY_DAEMON_ADDRESS": segments.address})
    caller.tracer = XRayTracer(send, lambda: trace)


def test_a_miss_is_three_sections_under_the_functions_own(caller, segments):
    traced(caller, segments)
    caller.post("/generate", BODY)
    found = segments(3)
    assert [s["name"] for s in found] == ["cache.get", "sagemaker.invoke", "cache.put"]
    for segment in found:
        assert segment["trace_id"] == "1-5759e988-bd862e3fe1be46a994272793"
        assert segment["parent_id"] == "53995c3f42cd8ad8"
        assert segment["start_time"] <= segment["end_time"]
        assert "fault" not in segment
    traceparent = f"00-5759e988bd862e3fe1be46a994272793-{found[1]['id']}-01"
    assert caller.runtime.calls[0]["CustomAttributes"] == f"traceparent={traceparent}"


def test_the_containers_phases_are_children_that_fit_into_the_invocation(caller, segments):
    traced(caller, segments)
    answer = json.loads(caller.runtime.tgi())
    answer[0]["details"]["speculation"] |= PHASES
    caller.runtime.script = lambda body: json.dumps(answer).encode()
    caller.post("/generate", BODY)
    _, *phases, invoke, _ = segments(8)
    assert [phase["name"] for phase in phases] == [
        f"model.{name}" for name in ("queue", "prefill", "ssm", "verify", "commit")
    ]
    assert {phase["parent_id"] for phase in phases} == {invoke["id"]}
    length = sum(phase["end_time"] - phase["start_time"] for phase in phases)
    assert length <= invoke["end_time"] - invoke["start_time"] + 1e-6


def test_a_failed_invocation_is_marked(caller, segments):
    traced(caller, segments)
    caller.runtime.fail("InternalFailure")
    caller.post("/generate", BODY)
    assert [s.get("fault") for s in segments(2)] == [None, True]


def test_what_is_not_sampled_is_not_sent(caller, segments):
    traced(caller, segments, TRACE.replace("Sampled=1", "Sampled=0"))
    caller.post("/generate", BODY)
    traced(caller, segments)
    caller.post("/generate", BODY)
    assert segments(1)[0]["name"] == "cache.get"


@pytest.mark.parametrize("address", ["", "nonsense", "host:port"])
def test_without_a_daemon_there_is_no_sender(address):
    assert daemon({"AWS_XRAY_DAEMON_ADDRESS": address}) is None


def test_a_daemon_that_is_gone_harms_nothing():
    send = daemon({"AWS_XRAY_DAEMON_ADDRESS": "127.0.0.1:9"})
    for _ in range(3):
        send(b"x")
