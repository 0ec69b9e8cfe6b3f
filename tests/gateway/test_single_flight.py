"""N equal requests at once cost one generation; a leader that fails or dies holds up nobody."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from botocore.exceptions import ReadTimeoutError

from specinfer_gateway.admission import Admission
from specinfer_gateway.deadline import Deadline
from specinfer_gateway.dialects import GENERATE
from specinfer_gateway.errors import GatewayError
from specinfer_gateway.service import Wish

CALLERS = 6


@pytest.fixture
def ask(caller):
    """Answer one request as a Lambda environment of its own would, in real time."""
    import time

    def ask(_=None, seconds=10.0):
        service = replace(caller.service, sleep=time.sleep)
        request = Admission(caller.settings).admit(GENERATE, {"inputs": "hi"})
        return service.answer(request, Wish(), Deadline.after(seconds, time.monotonic))

    return ask


def test_equal_requests_at_once_are_generated_once(caller, ask):
    gate = threading.Event()

    def slow(body):
        assert gate.wait(10)
        return caller.runtime.tgi()

    caller.runtime.script = slow
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = [pool.submit(ask) for _ in range(CALLERS)]
        threading.Timer(0.3, gate.set).start()
        found = [answer.result() for answer in answers]
    assert len(caller.runtime.calls) == 1
    assert len({answer.body for answer in found}) == 1
    assert sorted(answer.cache for answer in found) == ["HIT"] * (CALLERS - 1) + ["MISS"]


def test_when_the_leader_fails_the_next_one_leads(caller, ask):
    gate = threading.Event()

    def first_fails(body):
        assert gate.wait(10)
        if len(caller.runtime.calls) == 1:
            raise ReadTimeoutError(endpoint_url="x")
        return caller.runtime.tgi()

    caller.runtime.script = first_fails
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(ask) for _ in range(3)]
        gate.set()
        failures = [answer.exception() for answer in answers]
    assert sum(isinstance(failure, GatewayError) for failure in failures) == 1
    assert len(caller.runtime.calls) == 2


def test_a_dead_leaders_lease_runs_out(caller, ask):
    from specinfer_gateway.cache import Cache

    cache = Cache(caller.table, "cache", 60, caller.clock)
    ask()
    key = caller.table.scan(TableName="cache")["Items"][0]["cache_key"]["S"]
    assert cache.claim(key, "dead", 20, over=True)
    assert not cache.claim(key, "other", 20)
    with pytest.raises(GatewayError, match="still being answered"):
        ask(seconds=0.4)
    caller.clock.seconds += 22
    assert ask().cache == "MISS"


def test_a_lease_is_released_by_its_owner_only(caller):
    from specinfer_gateway.cache import Cache

    cache = Cache(caller.table, "cache", 60, caller.clock)
    assert cache.claim("k", "a", 5)
    cache.release("k", "b")
    assert not cache.claim("k", "b", 5)
    cache.release("k", "a")
    assert cache.claim("k", "b", 5)


def test_without_single_flight_no_lease_is_written(caller):
    caller.settings = replace(caller.settings, single_flight=False)
    caller.runtime.fail("InternalFailure")
    caller.post("/generate", {"inputs": "hi"})
    assert caller.table.scan(TableName="cache")["Count"] == 0


def test_a_resting_table_is_not_asked(caller):
    caller.breaker.trip()
    body = {"inputs": "hi"}
    assert [caller.post("/generate", body).headers["X-Cache"] for _ in range(2)] == ["BYPASS"] * 2
    caller.clock.seconds += 11
    assert caller.post("/generate", body).headers["X-Cache"] == "MISS"
