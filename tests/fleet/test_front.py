"""The fleet's front over replicas that die when told to; no Ray."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from specinfer.fleet.call import Call, Head, Part
from specinfer.fleet.errors import FleetBusyError, ReplicaLostError
from specinfer.fleet.front import ATTEMPTS, Front

JSON = ((b"content-type", b"application/json"), (b"x-kept", b"yes"))
SSE = ((b"content-type", b"text/event-stream"),)


@dataclass
class Scripted:
    """Each call is answered by the next script: parts, and errors to raise in their place."""

    scripts: list[list[Part | Exception]]
    calls: list[Call] = field(default_factory=list)

    async def call(self, call: Call) -> AsyncIterator[Part]:
        self.calls.append(call)
        for part in self.scripts.pop(0):
            if isinstance(part, Exception):
                raise part
            yield part

    async def pages(self) -> list[bytes]:
        return [b"# TYPE a counter\na_total 1.0\n", b"# TYPE a counter\na_total 2.0\n"]


LOST = ReplicaLostError("killed")
ANSWER: list[Part | Exception] = [Head(200, JSON), b'{"a":', b"1}"]


def post(replicas: Scripted, body: Any = None, path: str = "/invocations") -> httpx.Response:
    async def asked() -> httpx.Response:
        front = Front(replicas, ping_s=0.05)
        app = Starlette(routes=[Route("/{path:path}", front.answer, methods=["GET", "POST"])])
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://front") as client:
            if body is None:
                return await client.get(path)
            return await client.post(path, json=body)

    return asyncio.run(asked())


def test_an_answer_comes_through_unchanged() -> None:
    replicas = Scripted([ANSWER])
    response = post(replicas, {"prompt": "x"}, "/v1/completions?a=b")
    assert (response.status_code, response.json()) == (200, {"a": 1})
    assert response.headers["x-kept"] == "yes" and response.headers["content-length"] == "7"
    assert "X-SpecInfer-Attempts" not in response.headers
    (call,) = replicas.calls
    assert (call.path, call.query, call.method) == ("/v1/completions", b"a=b", "POST")


@pytest.mark.parametrize("dying", [[LOST], [Head(200, JSON), LOST], [Head(200, JSON), b"{", LOST]])
def test_a_whole_answer_is_made_anew(dying: list[Part | Exception]) -> None:
    response = post(Scripted([dying, ANSWER]), {"prompt": "x"})
    assert response.json() == {"a": 1}
    assert response.headers["X-SpecInfer-Attempts"] == "2"


def test_a_stream_is_begun_anew_while_nothing_was_told() -> None:
    response = post(Scripted([[LOST], [Head(200, SSE), b"data: 1\n\n"]]), {"prompt": "x"})
    assert response.text == "data: 1\n\n"


def test_a_stream_that_had_begun_ends_with_an_error_of_its_dialect() -> None:
    replicas = Scripted([[Head(200, SSE), b"data: 1\n\n", LOST]])
    response = post(replicas, {"inputs": "x", "stream": True})
    last = json.loads(response.text.split("\n\n")[1].removeprefix("data: "))
    assert last["error_type"] and "replica died" in last["error"]
    assert len(replicas.calls) == 1


def test_replicas_that_all_die_give_503() -> None:
    replicas = Scripted([[LOST]] * ATTEMPTS)
    response = post(replicas, {"messages": []})
    assert response.status_code == 503 and response.headers["Retry-After"] == "1"
    assert response.json()["error"]["code"] == "replica_lost"


def test_a_full_queue_gives_429() -> None:
    response = post(Scripted([[FleetBusyError("full")]]), {"inputs": "x"})
    assert response.status_code == 429 and "Retry-After" in response.headers


def test_a_fleet_without_a_replica_is_not_healthy() -> None:
    class Waiting(Scripted):
        async def call(self, call: Call) -> AsyncIterator[Part]:
            await asyncio.Event().wait()
            yield b""

    assert post(Waiting([]), path="/ping").status_code == 503
    assert post(Scripted([[Head(200, ())]]), path="/ping").status_code == 200


def test_metrics_are_the_fleets() -> None:
    assert "\na_total 3.0\n" in post(Scripted([]), path="/metrics").text


def test_calls_whose_prompts_begin_alike_have_one_name() -> None:
    def affinity(body: Any) -> str:
        return Call("POST", "/", body=json.dumps(body).encode()).affinity

    start = "x" * 2000
    first = {"messages": [{"role": "system", "content": start}, {"role": "user", "content": "a"}]}
    later = {"messages": [*first["messages"], {"role": "assistant", "content": "b"}]}
    assert affinity(first) == affinity(later) == affinity({**later, "stream": True})
    assert affinity({"prompt": "a"}) != affinity({"prompt": "b"})
    assert affinity({"inputs": "a"}) and Call("GET", "/", body=b"").affinity == ""
