"""Runs interpreted_cases.py in a process of its own.

Triton reads TRITON_INTERPRET when it is first imported, which another test may have done here.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
CASES = Path(__file__).with_name("interpreted_cases.py")


def test_kernels_agree_with_the_definition_when_interpreted() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CASES],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=CASES.parents[2],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
