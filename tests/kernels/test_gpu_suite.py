"""The GPU suite: one line where there is no card, and a dry run through all of it."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The dry run's sizes with the CPU's own kernels, which need no interpreter."""
    monkeypatch.syspath_prepend(SUITE.parent)
    from gpu_rig import DRY

    return replace(DRY, backend="cpu")


def until(seconds: float) -> Any:
    from gpu_rig import Until

    return Until(time.monotonic() + seconds)


def test_its_engine_still_fits_ours(rig: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The part of the dry run that other changes break, without the interpreter."""
    import gpu_engine

    bench = gpu_engine.Bench.of(rig)
    assert gpu_engine.check_engine(rig) == 0
    assert gpu_engine.measure_steps(rig, bench, until(600)) == 0
    assert gpu_engine.measure_speed(rig, bench, until(600)) == 0
    assert "left out" not in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_every_check_and_row_of_the_kernels_runs(
    rig: Any, generator: torch.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    import gpu_kernels

    assert gpu_kernels.check_kernels(rig, generator, until(600)) == 0
    assert gpu_kernels.check_peers(rig, generator) == 0
    assert gpu_kernels.measure_kernels(rig, generator, until(600)) == 0
    told = capsys.readouterr()
    assert told.out.count("check ok") == 1 + len(rig.checks) * 2 * 3 + 3
    assert "left out" not in told.out + told.err


def test_every_check_and_row_of_sampling_runs(rig: Any, capsys: pytest.CaptureFixture[str]) -> None:
    import gpu_sampling

    assert gpu_sampling.check_sampling(rig, until(600)) == 0
    assert gpu_sampling.measure_sampling(rig, until(600)) == 0
    told = capsys.readouterr()
    assert told.out.count("check ok") == len(rig.vocabularies) * 4
    assert len(told.out.splitlines()[-1].split()) == 2 + 2 * 3 + 2
    assert "left out" not in told.out + told.err


def test_what_time_does_not_allow_is_left_out_and_said(
    rig: Any, generator: torch.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    import gpu_engine
    import gpu_kernels
    import gpu_sampling

    assert gpu_kernels.check_kernels(rig, generator, until(-1)) == 0
    assert gpu_kernels.measure_kernels(rig, generator, until(-1)) == 0
    bench = gpu_engine.Bench.of(rig)
    gpu_engine.measure_steps(rig, bench, until(-1))
    gpu_engine.measure_speed(rig, bench, until(-1))
    assert gpu_sampling.check_sampling(rig, until(-1)) == 0
    assert gpu_sampling.measure_sampling(rig, until(-1)) == 0
    told = capsys.readouterr().out
    for line in (
        *("checks: 12 of 12", "attention: 2 of 2", "steps: 3 of 3", "speeds: 2 of 2"),
        *("sampling checks: 1 of 1", "sampling: 1 of 1"),
    ):
        assert f"time is up: {line} left out" in told
    assert until(100).share(0.5).over is False


def test_a_fault_in_one_case_is_counted_and_the_others_go_on(
    rig: Any,
    generator: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import gpu_kernels

    attend = gpu_kernels.tree_attention

    def broken(query: torch.Tensor, *rest: Any, **rules: Any) -> torch.Tensor:
        if query.dtype == torch.float16:
            raise RuntimeError("no such instruction")
        return attend(query, *rest, **rules)

    def torn(*_: Any) -> None:
        raise KeyError("flex")

    monkeypatch.setattr(gpu_kernels, "tree_attention", broken)
    monkeypatch.setattr(gpu_kernels, "flex", torn)
    assert gpu_kernels.check_kernels(rig, generator, until(600)) == 2 * len(rig.checks)
    assert gpu_kernels.measure_kernels(rig, generator, until(600)) == 0
    told = capsys.readouterr()
    assert told.out.count("RuntimeError: no such instruction") == 2 * len(rig.checks)
    assert "left out: torn: 'flex'" in told.err
    assert "Flex/ours" in told.out


def test_kernels_that_spill_are_named(
    rig: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton")
    import gpu_kernels

    from specinfer_kernels.sampling import walk_kernel
    from specinfer_kernels.tree_attention import kernel

    tile = SimpleNamespace(num_warps=4, num_stages=3)
    launched = {spills: SimpleNamespace(n_spills=spills, metadata=tile) for spills in (0, 8)}
    for module, name in ((kernel, "attend_tile"), (walk_kernel, "traversal")):
        counted = SimpleNamespace(device_caches={0: (launched, {})}, __name__=name)
        monkeypatch.setattr(module, name, counted)
    gpu_kernels.say_spills()
    assert capsys.readouterr().out.splitlines() == [
        "note: attend_tile (4 warps, 3 stages) spills 8 registers with this Triton",
        "note: traversal (4 warps, 3 stages) spills 8 registers with this Triton",
        "4 variants of kernels were launched, 2 spill",
    ]


def test_a_run_that_hangs_ends_by_itself() -> None:
    """With no time at all the watchdog is first."""
    pytest.importorskip("triton")
    run = suite("--dry-run", "--minutes", "0.0001")
    assert run.returncode == 3
    assert run.stdout.endswith("time is up: stopped in the middle of a case\n")


@pytest.mark.slow
def test_a_dry_run_goes_through_everything() -> None:
    """So that the first run on a card does not end at a typo."""
    pytest.importorskip("triton")
    run = suite("--dry-run")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FAILS" not in run.stdout
    assert "left out" not in run.stdout + run.stderr
    for table in (
        "sampling, trees",
        "milliseconds of a step",
        "tokens a second with CUDA graphs",
        "attention, heads",
    ):
        assert table in run.stdout
