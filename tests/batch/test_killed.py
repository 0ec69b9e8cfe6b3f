"""A batch killed outright goes on where it was: the command as a process, a tiny model."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specinfer.testing.toy import write_tiny_model

ROWS, LIMIT_S = 40, 120


@pytest.mark.slow
def test_a_killed_batch_goes_on(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny", "llama")
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [{"prompt": "abc"[: 1 + row % 3], "max_tokens": 16, "seed": row} for row in range(ROWS)]
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command = [sys.executable, "-m", "specinfer.cli", "batch", str(source), str(output)]
    command += ["--model", str(model), "--shard", "1"]
    paths = os.pathsep.join(path for path in sys.path if path)
    environ = os.environ | {"PYTHONPATH": paths}

    first = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    parts, deadline = tmp_path / "out.jsonl.parts", time.monotonic() + LIMIT_S
    while len(list(parts.glob("0*.jsonl"))) < 2:
        assert first.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait(LIMIT_S)
    done = {path: path.stat().st_mtime_ns for path in parts.glob("0*.jsonl")}
    assert 0 < len(done) < ROWS // 2, "killed too late to prove anything"

    second = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
    assert second.returncode == 0, second.stderr
    assert second.stderr.startswith(f"{len(done)}/{ROWS} rows"), "finished rows were done again"
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(answers) == ROWS and not parts.exists()
    assert all(answer["choices"][0]["finish_reason"] for answer in answers)
