"""The GPU suite: one line where there is no card, and a dry run through all of it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SUITE = Path(__file__).parents[2] / "benchmarks" / "gpu_suite.py"


def suite(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SUITE), *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_a_machine_without_a_card_is_told_in_one_line() -> None:
    run = suite()
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("gpu_suite: nothing to measure: no CUDA device")
    assert run.stderr.count("\n") == 1


def test_its_engine_still_fits_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The part of the dry run that other changes break, without the interpreter."""
    monkeypatch.syspath_prepend(SUITE.parent)
    import gpu_engine
    from gpu_rig import DRY

    bench = gpu_engine.Bench.of(DRY)
    assert gpu_engine.check_engine(DRY, bench) == 0
    gpu_engine.measure_steps(DRY, bench)
    gpu_engine.measure_speed(DRY, bench)
    assert "left out" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_dry_run_goes_through_everything() -> None:
    """So that the first run on a card does not end at a typo."""
    pytest.importorskip("triton")
    run = suite("--dry-run")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FAILS" not in run.stdout
    assert "left out" not in run.stdout + run.stderr
    for table in ("milliseconds of a step", "tokens a second with CUDA graphs", "attention, heads"):
        assert table in run.stdout
