"""Real ranks under torchrun: tokens of one rank, and what happens when one dies or hangs."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.parallel.remote import Limits, RemoteEngine
from specinfer.testing.ask import Asker
from specinfer.testing.child import free_port, running

pytestmark = pytest.mark.slow

ROOTS = os.pathsep.join(str(Path(root).resolve()) for root in ("model_server", "kernels"))


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ROOTS)


def rank(pid: int, number: int) -> int:
    """Return the process of a rank somewhere below a process."""
    below = [pid]
    for each in below:
        found = (task.read_text().split() for task in Path(f"/proc/{each}/task").glob("*/children"))
        below += [int(child) for children in found for child in children]
        if f"\0RANK={number}\0" in Path(f"/proc/{each}/environ").read_text():
            return each
    raise AssertionError(f"no rank {number} below {pid}")


def test_three_ranks_of_the_real_model_give_the_tokens_of_one() -> None:
    from specinfer.model_store import resolve_model

    path = Path(__file__).parents[2] / "benchmarks" / "prompts" / "code.jsonl"
    prompts = [json.loads(line)["prompt"] for line in path.read_text().splitlines()[:3]]
    config = {"model": resolve_model("default"), "dtype": "float32", "device": "cpu"}
    told: list[list[list[int]]] = []
    for engine in (
        Engine.load(EngineConfig(**config, adaptive=False)),
        RemoteEngine.load(EngineConfig(**config, adaptive=False, tensor_parallel=3)),
    ):
        asker = Asker(engine)
        chats = [engine.encode_chat([{"role": "user", "content": prompt}]) for prompt in prompts]
        waiting = [asker.submit(chat, max_new_tokens=12)[1] for chat in chats]
        told.append([asker.gather(deltas).tokens for deltas in waiting])
        engine.close()
    assert told[0] == told[1]


def test_a_rank_that_hangs_is_noticed(tiny: dict[str, Path]) -> None:
    config = EngineConfig(model=tiny["llama"], device="cpu", tensor_parallel=2)
    engine = RemoteEngine.load(config, limits=Limits(step_s=2.0))
    os.kill(rank(engine._process.pid, 1), signal.SIGSTOP)
    answer = Asker(engine)([1, 2, 3], max_new_tokens=4)
    assert answer.last.finish_reason == "lost"
    engine.close()


@pytest.fixture
def server(tiny: dict[str, Path], tmp_path: Path) -> Iterator[httpx.Client]:
    port = free_port()
    settings = {"MODEL": str(tiny["llama"]), "TP": "2", "DEVICE": "cpu", "PORT": str(port)}
    environ = os.environ | {f"SPECINFER_{name}": value for name, value in settings.items()}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        command = [sys.executable, "-m", "specinfer.server", "serve"]
        with running(command, environ, tmp_path, lambda: status(client) == 200):
            yield client


def status(client: httpx.Client) -> int:
    try:
        return client.get("/ping").status_code
    except httpx.TransportError:
        return 0


def ranks_of(port: int) -> int:
    """Return the server's process, found by what it was told."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            told = (entry / "environ").read_text(), (entry / "cmdline").read_text()
        except OSError:
            continue
        if f"SPECINFER_PORT={port}" in told[0] and "specinfer.server" in told[1]:
            return int(entry.name)
    raise AssertionError("no server")


def test_a_killed_rank_is_a_503_and_a_restart(server: httpx.Client) -> None:
    body = {"inputs": "abcabc", "parameters": {"max_new_tokens": 3}}
    before = server.post("/invocations", json=body)
    assert before.status_code == 200
    long = {"inputs": "ab", "parameters": {"max_new_tokens": 200, "ignore_eos": True}}
    own = ranks_of(server.base_url.port)
    caught: list[httpx.Response] = []
    with server.stream("POST", "/invocations", json=long | {"stream": True}) as stream:
        lines = stream.iter_lines()
        next(lines)
        whole = threading.Thread(
            target=lambda: caught.append(server.post("/invocations", json=long))
        )
        whole.start()
        os.kill(rank(own, 1), signal.SIGKILL)
        last = [line for line in lines if line][-1]
        whole.join(60)
    assert "engine_restarting" in last
    assert caught[0].status_code == 503
    assert caught[0].json()["code"] == "engine_restarting"
    assert status(server) == 503
    assert server.post("/invocations", json=body).status_code == 503
    wait_for_restart(server)
    after = server.post("/invocations", json=body)
    assert after.json()[0]["generated_text"] == before.json()[0]["generated_text"]


def wait_for_restart(server: httpx.Client) -> None:
    deadline = threading.Event()
    for _ in range(600):
        if status(server) == 200:
            return
        deadline.wait(0.1)
    raise AssertionError("the ranks were not restarted within a minute")
