"""`serve` as a process: start-up faults in one line, SIGTERM ends it with status 0."""

import argparse
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys

import httpx
import pytest

from specinfer.model_store import ModelStore, cache_folder
from specinfer.model_store.catalogue import known
from specinfer.server.command import _overrides, add_arguments

SERVE = [sys.executable, "-m", "specinfer.server", "serve"]
# The whole server but its model: the real command line, with the fake engine loaded by it.
FAKED = """
import sys
from specinfer.server import command, run
from specinfer.testing.fake_engine import FakeEngine
run.load_engine = lambda config: FakeEngine(step_s=0.02)
sys.exit(command.main())
"""

# The command line up to where torch is imported.
SLOW_IMPORT = """
import sys, time
from types import SimpleNamespace
from specinfer.server import command
def serve(settings, listener):
    print("importing", flush=True)
    time.sleep(60)
sys.modules["specinfer.server.run"] = SimpleNamespace(serve=serve)
sys.exit(command.main())
"""


def environment(**settings):
    roots = os.pathsep.join(["model_server", "kernels"])
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPECINFER_")}
    return kept | {"PYTHONPATH": roots} | {f"SPECINFER_{k}": v for k, v in settings.items()}


def test_missing_model_folder_is_one_line_and_status_2(tmp_path):
    done = subprocess.run(
        SERVE, env=environment(MODEL=str(tmp_path / "gone")), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("specinfer: ")
    assert str(tmp_path / "gone") in line


def test_taken_port_is_one_line_and_status_2(model_folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            SERVE,
            env=environment(MODEL=str(model_folder), HOST="127.0.0.1", PORT=str(port)),
            capture_output=True,
            text=True,
        )
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


@pytest.fixture
def model_folder(tmp_path):
    """A folder that looks like a model; the fake engine never reads it."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def process(model_folder, wait_until):
    port = free_port()
    settings = {"MODEL": str(model_folder), "PORT": str(port), "DRAIN_S": "1"}
    child = subprocess.Popen([sys.executable, "-c", FAKED], env=environment(**settings))
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: ready(url), "the process's start", 60)
        yield child, url
    finally:
        child.kill()
        child.wait()


def ready(url):
    try:
        return httpx.get(f"{url}/ping").status_code == 200
    except httpx.TransportError:
        return False


def test_sigterm_while_the_engine_is_being_imported_exits_0(model_folder):
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_IMPORT],
        env=environment(MODEL=str(model_folder), HOST="127.0.0.1", PORT=str(free_port())),
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout.readline() == b"importing\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 0


def test_sigterm_drains_running_answers_and_exits_0(process):
    child, url = process
    body = {"inputs": "ab", "parameters": {"max_new_tokens": 4000}, "stream": True}
    with httpx.stream("POST", f"{url}/invocations", json=body, timeout=10) as response:
        lines = response.iter_lines()
        next(lines)
        child.send_signal(signal.SIGTERM)
        last = [line for line in lines if line][-1]
    assert '"truncated_by":"shutdown"' in last
    assert child.wait(timeout=10) == 0


def test_a_known_name_is_served_like_a_folder(model_folder, tmp_path_factory, monkeypatch):
    root = tmp_path_factory.mktemp("cache")
    store = ModelStore(cache_folder({"SPECINFER_CACHE": str(root)}))
    folder = store.path(known("default", store.models))
    shutil.copytree(model_folder, folder)
    monkeypatch.setenv("SPECINFER_CACHE", str(root))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--model", "default"])
    assert _overrides(args, {"SPECINFER_SSMS": "none"}) == {"model": folder}
    given = _overrides(args, {})
    assert given["model"] == folder
    assert [ssm.parent.name for ssm in given["ssms"]] == ["smollm2-135m-instruct"] * 2
