"""A fleet of two replicas on a Ray of this machine: one killed under load loses no request."""

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from specinfer.testing.toy import write_tiny_model

ROOT = Path(__file__).parents[2]
BESIDE = ROOT / ".venv-ray" / "bin" / "python"  # `make test-slow` makes it
PYTHON = str(BESIDE) if BESIDE.exists() else sys.executable
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not BESIDE.exists() and find_spec("ray") is None,
        reason="ray is not installed: make .venv-ray/.installed",
    ),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("fleet")
    model = write_tiny_model(folder / "tiny", "llama")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PYTHON, Path(__file__).with_name("fleet_probe.py"), model, str(port)]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)
    assert done.returncode == 0, done.stderr[-4000:]
    # Ray itself may print to the output, too.
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    return json.loads(line)


def test_no_request_is_lost_when_a_replica_is_killed(report: Any) -> None:
    """Whole answers are made anew; a stream that had begun ends with an error of its dialect."""
    answers = report["during"]["answers"]
    assert {answer["status"] for answer in answers} <= {200, 503}
    whole = [answer for number, answer in enumerate(answers) if number % 4 != 3]
    assert not any(answer["cut"] for answer in whole)
    touched = [each for each in answers if each["attempts"] > 1 or each["cut"]]
    assert touched, "the replica was killed with nothing to do"


def test_the_fleet_recovers(report: Any) -> None:
    for phase in ("before", "after"):
        assert all(answer["status"] == 200 for answer in report[phase]["answers"])
    # Of one run, and far below what it varies by: a fleet that stays at half its size tells.
    before, after = (report[phase]["calls_a_second"] for phase in ("before", "after"))
    assert after > before / 2
    assert report["ping"] == 200


def test_a_new_release_loses_no_request(report: Any) -> None:
    """Replicas that are to go take no new calls and finish what they have."""
    release = report["release"]
    assert release["stayed"] == 0 and len(release["answers"]) > 8
    assert {(a["status"], a["attempts"], a["cut"]) for a in release["answers"]} == {(200, 1, False)}


def test_by_prefix_a_prompt_comes_back_to_its_cache(report: Any) -> None:
    assert sorted(report["alike"]) == [0, 7]


def test_one_metrics_page_counts_for_both_replicas(report: Any) -> None:
    page = report["metrics"]
    assert page.count("# TYPE specinfer_requests_total counter") == 1
    (line,) = (row for row in page.splitlines() if row.startswith("specinfer_requests_total{"))
    assert float(line.split()[-1]) >= len(report["after"]["answers"])


def test_what_serve_and_kuberay_import_is_an_application() -> None:
    code = "from specinfer.fleet import app; print(type(app).__name__)"
    found = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert found.stdout.startswith("Application"), found.stderr
