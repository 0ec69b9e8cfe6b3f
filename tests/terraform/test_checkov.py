"""checkov's policies, offline: what it still finds is skipped with a reason, or fails here."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MISSING = (
    "checkov is not installed: python3 -m venv .venv-checkov && "
    ".venv-checkov/bin/pip install checkov==3.3.30"
)


@pytest.fixture(scope="module")
def checkov(repository: Path) -> Path:
    """It pins half of PyPI, so it lives in a virtual environment of its own."""
    command = repository / ".venv-checkov" / "bin" / "checkov"
    if not command.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    return command


@pytest.mark.parametrize("stack", ["small", "medium", "large"])
def test_nothing_is_found_that_has_no_reason(checkov: Path, repository: Path, stack: str) -> None:
    folder = repository / "terraform"
    done = subprocess.run(
        [
            checkov,
            f"--config-file={folder / 'checkov.yaml'}",
            f"--directory={folder / stack}",
            f"--var-file={folder / stack / 'example.tfvars'}",
            "--output=json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    failed = report["results"]["failed_checks"]
    assert [f"{f['check_id']} {f['resource']}: {f['check_name']}" for f in failed] == []
    assert report["summary"]["passed"] > 100


def test_every_skip_has_a_reason(repository: Path) -> None:
    text = (repository / "terraform" / "checkov.yaml").read_text()
    for line in re.findall(r"^  - CKV.*$", text, re.M):
        assert re.search(r"# .{20,}", line), line
