"""The command as a user runs it, with the default model: slow."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_a_fresh_stack_answers_with_more_than_one_token_a_step_and_caches() -> None:
    ports = ("--port=0", "--container-port=0", "--runtime-port=0", "--dynamodb-port=0")
    command = [sys.executable, "-m", "specinfer.cli", "local", "up", "--once", *ports]
    # On a machine busy with other work the adaptive tree may rightly draft next to nothing.
    environ = os.environ | {"SPECINFER_ADAPTIVE": "false"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)
    assert done.returncode == 0, done.stderr
    figure = done.stdout.split(" tokens per LLM step")[0].split()[-1]
    assert float(figure) > 1.0
    assert "X-Cache: HIT" in done.stdout
