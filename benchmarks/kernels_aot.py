"""What the GPU kernels take of each card, compiled without one: a table of every tile.

Run: python benchmarks/kernels_aot.py (TRITON_CACHE_DIR keeps what is compiled, so that a second
run takes seconds).  It compiles by `specinfer_kernels.warm`, a process for each card and dtype, as
many at a time as there are cores.  Each cell is registers a thread / KiB of shared memory a block,
the larger figure of the split and the unsplit kernel, and the number of faults where there are any
(spills, too much shared memory, no tensor-core instruction); it exits with 1 then.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

KERNELS = Path(__file__).parents[1] / "kernels"
HEADS = ("9/3/64", "32/32/80", "32/32/96", "32/8/128", "4/1/256", "8/4/256/4096/50")
# bfloat16 for every card that is served; the other types for the A10G, the card of ml.g5.
TARGETS = ("80 bf16", "86 bf16", "89 bf16", "90 bf16", "86 fp16", "86 fp32")
# What --quick compiles of it: every width's code on the A10G (96 is compiled as 80 is), and every
# tile of the commonest width on the other cards and in float16.
QUICK = {
    "86 bf16": ("9/3/64", "32/32/80", "32/8/128", "8/4/256/4096/50"),
    "86 fp32": ("9/3/64", "32/32/80", "32/8/128", "8/4/256/4096/50"),
    "90 bf16": ("32/8/128",),
    "80 bf16": ("32/8/128",),
    "89 bf16": ("32/8/128",),
    "86 fp16": ("32/8/128",),
}
LINE = re.compile(
    r"attend_tile +(?P<tile>D=.*?)(?P<split> split)? +registers=(?P<registers>\d+) "
    r"spills=(?P<spills>\d+) shared=(?P<shared>\d+) tensor-core=\d+(?P<faults>.*)"
)
Cells = dict[str, tuple[int, int, str]]  # tile -> registers, shared bytes, faults


def compiled(target: str, heads: tuple[str, ...]) -> Cells:
    """Compile a card's kernels in one dtype."""
    card, dtype = target.split()
    command = [sys.executable, "-m", "specinfer_kernels.warm", "--capability", card]
    command += ["--dtype", dtype, *(part for each in heads for part in ("--heads", each))]
    paths = os.pathsep.join([str(KERNELS), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    if not run.stdout.rstrip().endswith(" faulty"):
        raise RuntimeError(f"{target}: {run.stderr}")
    cells: Cells = {}
    for found in map(LINE.match, run.stdout.splitlines()):
        if found is not None:
            registers, shared, faults = cells.get(found["tile"], (0, 0, ""))
            cells[found["tile"]] = (
                max(registers, int(found["registers"])),
                max(shared, int(found["shared"])),
                faults or found["faults"].strip(),
            )
    return cells


def table(columns: dict[str, Cells]) -> str:
    """Return the table of all tiles, one line each."""
    tiles: dict[str, dict[str, str]] = defaultdict(dict)
    for target, cells in columns.items():
        for tile, (registers, shared, faults) in cells.items():
            tiles[tile][target] = f"{registers}/{shared / 1024:.0f}{'!' if faults else ''}"
    heading = " ".join(f"{'sm_' + target:>12}" for target in columns)
    lines = [f"{'tile':50} {heading}"]
    for tile, found in tiles.items():
        lines.append(f"{tile:50} " + " ".join(f"{found.get(t, '-'):>12}" for t in columns))
    for target, cells in columns.items():
        lines += [f"! sm_{target} {tile}: {f}" for tile, (_, _, f) in cells.items() if f]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", action="append", help="heads/kv_heads/width; repeatable")
    parser.add_argument("--target", choices=TARGETS, action="append", help="card and dtype")
    parser.add_argument("--quick", action="store_true", help="a third of it, all cards and types")
    wish = parser.parse_args()
    heads = tuple(wish.heads or HEADS)
    wanted = QUICK if wish.quick else dict.fromkeys(wish.target or TARGETS, heads)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        columns = dict(zip(wanted, pool.map(compiled, wanted, wanted.values()), strict=True))
    print(f"Triton {version('triton')}, pages of 16 slots: registers a thread / KiB a block")
    print(table(columns))
    return int(any(faults for cells in columns.values() for _, _, faults in cells.values()))


if __name__ == "__main__":
    sys.exit(main())
