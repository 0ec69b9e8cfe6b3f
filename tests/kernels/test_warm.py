"""Ahead-of-time compilation: what the machine code uses, and a cache filled without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
from specinfer_kernels.aot import Usage

TABLE = Path(__file__).parents[2] / "benchmarks" / "kernels_aot.py"


def warm(cache: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "TRITON_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-W", "error", "-m", "specinfer_kernels.warm", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_kernels_fit_an_a10g_and_stay_in_the_cache(tmp_path: Path) -> None:
    options = ("--capability", "86", "--heads", "9/3/64", "--tile", "16", "--vocab", "32000")
    first = warm(tmp_path, *options)
    assert first.returncode == 0, first.stdout + first.stderr
    # Two of attend_tile, one to combine, four to commit, one to warp, two to draw, two to walk.
    assert "12 kernels new" in first.stdout
    assert "0 kernels new" in warm(tmp_path, *options).stdout


def test_unknown_cards_and_heads_are_refused(tmp_path: Path) -> None:
    card = warm(tmp_path, "--capability", "61")
    assert card.returncode == 1
    assert card.stderr.strip().endswith("capability 61 is not served; choose from 80, 86, 89, 90")
    assert "'32x8' is not heads/kv_heads/width" in warm(tmp_path, "--heads", "32x8").stderr


def test_faults_are_named() -> None:
    bad = Usage(registers=255, spills=3, looped=1, shared=110_000, products=0)
    assert bad.faults(86, tensor_cores=True) == [
        "3 spills, 1 of them in loops",
        "110000 bytes of shared memory; the limit is 101376",
        "no tensor-core instruction",
    ]
    assert (
        Usage(registers=40, spills=0, looped=0, shared=110_000, products=0).faults(90, False) == []
    )


@pytest.mark.slow
def test_kernels_compile_for_every_card_and_type(tmp_path: Path) -> None:
    """All widths on the A10G, the card of ml.g5, and tiles of one width on the others.

    The whole table, all widths on all cards, is in docs/kernels.md.
    """
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, str(TABLE), "--quick"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr  # a fault's own line says which
    lines = run.stdout.splitlines()[1:]
    samplers = next(place for place, line in enumerate(lines) if place and "sm_" in line)
    assert lines[samplers].split()[1::2] == ["sm_80", "sm_86", "sm_89", "sm_90"]
    names = {line.split()[0] for line in lines[samplers + 1 :]}
    assert names == {"warp_row", "draw_row", "multi_step", "traversal"}
    heading, *lines = lines[:samplers]
    assert heading.split()[1::2] == ["sm_86", "sm_86", "sm_90", "sm_80", "sm_89", "sm_86"]
    rows = [line.split() for line in lines]
    assert {row[0] for row in rows} == {"D=64", "D=80", "D=128", "D=256"}
    common = [row for row in rows if row[0] == "D=128" and row[-5] == "-"]
    assert [row[-5:].count("-") for row in common] == [3, 3, 3, 1]  # sm_89 and fp16: the largest
    assert sum(row[-5] != "-" for row in rows) == 4  # float32 has one tile a width
