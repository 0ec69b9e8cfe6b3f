"""Runs files of cases with Triton's interpreter, in processes of their own.

Triton reads TRITON_INTERPRET when it is first imported, which another test may have done here.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent


def interpret(cases: str, *options: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / cases, *options],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("cases", ["interpreted_cases.py", "test_sampling.py"])
def test_kernels_agree_with_the_definition_when_interpreted(cases: str) -> None:
    interpret(cases)


@pytest.mark.slow
def test_hundreds_of_trees_are_walked_as_the_engine_walks_them() -> None:
    interpret("test_sampling.py", "-m", "slow")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["engine or pointer", "suite"])
def test_engine_and_suite_run_with_them_on_a_pretend_card(which: str) -> None:
    interpret("card_cases.py", "-k", which)
