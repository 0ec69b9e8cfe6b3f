"""The command line, up to its one-line failures, its signals and what it leaves behind."""

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specinfer.local import command
from specinfer.local.errors import LocalStackError
from specinfer.model_store import ModelStoreError

ANY_PORT = ("--port=0", "--container-port=0", "--runtime-port=0", "--dynamodb-port=0")
GATEWAY = Path(__file__).parents[2] / "lambda"
STACK = """
import asyncio, sys
from pathlib import Path
from specinfer.local import command
from specinfer.local.ports import Listeners, Ports
from specinfer.local.stack import StackSettings
model, gateway, logs = map(Path, sys.argv[1:4])
settings = StackSettings(model=model, gateway=gateway, logs=logs, module="fake_container")
with Listeners(Ports(rest=0, container=0, runtime=0, dynamodb=0)) as listeners:
    asyncio.run(command._until_signalled(settings, listeners, "hello", "once" in sys.argv))
"""


def _run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(["up", *argv]))


def test_a_taken_port_names_itself_and_the_option_that_moves_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalStackError, match=rf"port {port}, for the REST API.* --port"):
            _run(*ANY_PORT, f"--port={port}")


def test_a_missing_model_is_one_line() -> None:
    with pytest.raises(ModelStoreError, match="'/no/such' is neither a folder nor a known name"):
        _run(*ANY_PORT, "--model=/no/such", f"--gateway={GATEWAY}")


def test_a_missing_gateway_says_where_it_should_be(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="has no handler.py.* source checkout"):
        _run(*ANY_PORT, f"--gateway={tmp_path}")


@pytest.fixture
def program(tmp_path: Path, fake_module: str) -> list[str]:
    (tmp_path / "tiny").mkdir()
    return [sys.executable, "-c", STACK, *map(str, (tmp_path / "tiny", GATEWAY, tmp_path))]


@pytest.fixture
def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _descendants(pid: int) -> list[int]:
    """Processes of the stack: its children, by /proc."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_once_shows_the_answer_the_hit_and_the_calls_to_paste(
    program: list[str], environ: dict[str, str]
) -> None:
    done = subprocess.run(
        [*program, "once"], env=environ, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert "echo hello" in done.stdout
    assert "2.50 tokens per LLM step" in done.stdout
    assert "X-Cache: HIT" in done.stdout
    assert done.stdout.count("curl -s http://127.0.0.1:") == 2
    assert 'boto3.client(\n      "sagemaker-runtime"' in done.stdout


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_however_the_stack_ends_no_child_stays(
    program: list[str],
    environ: dict[str, str],
    eventually: Callable[..., None],
    number: signal.Signals,
    status: int,
) -> None:
    with subprocess.Popen(
        program, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C stops it" in line:
                break
        children = _descendants(process.pid)
        assert len(children) >= 2  # the container and a Lambda environment
        process.send_signal(number)
        assert process.wait(20) == status
    eventually(lambda: not any(map(_alive, children)))
