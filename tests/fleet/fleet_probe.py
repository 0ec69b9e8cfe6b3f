"""Runs a fleet of two on a Ray of this machine and prints what happened to every call.

One replica is killed under load; later all are replaced under load, as by a new release, which
routes by prefix where the first one looked at the load.

A script, because Ray's own warnings and threads have no place in a test's process.
"""

import json
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
from ray import serve

from specinfer.fleet.application import build

CALLERS, CALLS, NEW = 8, 24, 160
ALIKE = 7
LIMIT_S = 90


def ask(
    url: str, number: int, stream: bool = False, prompt: str = "", new: int = NEW
) -> dict[str, Any]:
    """Return status, text, and how many replicas it took; status -1: the answer broke off."""
    body: dict[str, Any] = {"prompt": prompt or f"call {number}", "max_tokens": new}
    body |= {"temperature": 0}
    body |= {"ignore_eos": True, "stream": stream}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
            attempts = int(response.headers.get("X-SpecInfer-Attempts", 1))
            text = response.read().decode()
            return {"status": response.status, "attempts": attempts, "cut": '"error"' in text}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "attempts": 1, "cut": False}
    except OSError:
        return {"status": -1, "attempts": 1, "cut": True}


def load(url: str, victim: str | None = None) -> dict[str, Any]:
    """Send calls from several threads, every fourth a stream; kill a replica once some are in."""
    started = time.monotonic()
    with ThreadPoolExecutor(CALLERS) as pool:
        asked = [pool.submit(ask, url, number, number % 4 == 3) for number in range(CALLS)]
        asked[1].result()
        if victim is not None:
            ray.kill(ray.get_actor(victim, namespace="serve"))
        answers = [each.result() for each in asked]
    return {"answers": answers, "calls_a_second": CALLS / (time.monotonic() - started)}


def replaced(url: str, routing: str) -> dict[str, Any]:
    """Deploy anew while callers go on: every replica and front is drained and ended."""
    done, answers = threading.Event(), list[dict[str, Any]]()

    def caller(number: int) -> None:
        while not done.is_set():
            answers.append(ask(url, number, number % 4 == 3))

    before = counts()
    with ThreadPoolExecutor(CALLERS) as pool:
        asked = [pool.submit(caller, number) for number in range(CALLERS)]
        deploy(routing)
        done.set()
    for each in asked:
        each.result()
    return {"answers": answers, "stayed": len(before.keys() & counts().keys())}


def alike(url: str) -> list[float]:
    """Send one prompt again and again; return how often each replica answered."""
    before = counts()
    for number in range(ALIKE):
        ask(url, number, prompt="a" * 100, new=4)
    return [count - before[name] for name, count in counts().items()]


def counts() -> dict[float, float]:
    """Return the requests that each replica has answered, by the time it began to count.

    That of its oldest counter: some begin with the first request, and stand before the others.
    """
    handle = serve.get_deployment_handle("SpecInfer", "default")
    pages = [page.decode() for page in handle.broadcast("page").results(timeout_s=LIMIT_S)]
    return {
        min(_values(r"\w+_created", page)): sum(_values("requests_total", page)) for page in pages
    }


def _values(name: str, page: str) -> list[float]:
    return [
        float(value) for value in re.findall(rf"^specinfer_{name}(?:{{.*}})? (.+)$", page, re.M)
    ]


def deploy(routing: str) -> None:
    serve.run(build({"routing": routing, "min_replicas": "2", "max_replicas": "2"}))


def replicas() -> list[str]:
    named = ray.util.list_named_actors(all_namespaces=True)
    return sorted(each["name"] for each in named if "#SpecInfer#" in each["name"])


def wait_for_two(dead: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        status = serve.status().applications["default"].deployments["SpecInfer"]
        if status.replica_states.get("RUNNING") == 2 and dead not in replicas():
            return
        assert time.monotonic() < deadline, f"the fleet did not recover: {status}"
        time.sleep(0.2)


def pages(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=LIMIT_S) as page:
        metrics = page.read().decode()
    with urllib.request.urlopen(f"{url}/ping", timeout=LIMIT_S) as ping:
        return {"metrics": metrics, "ping": ping.status}


def main(model: str, port: int) -> None:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"SPECINFER_MODEL": model, "SPECINFER_DTYPE": "float32"}},
        log_to_driver=False,
    )
    try:
        serve.start(http_options={"port": port})
        deploy("least_loaded")
        url = f"http://127.0.0.1:{port}"
        before = load(url)
        victim = replicas()[0]
        during = load(url, victim)
        wait_for_two(victim)
        after = load(url)
        report = {"before": before, "during": during, "after": after, **pages(url)}
        report |= {"release": replaced(url, "prefix"), "alike": alike(url)}
        print(json.dumps(report))
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main(str(Path(sys.argv[1])), int(sys.argv[2]))
