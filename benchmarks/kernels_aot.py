"""What the GPU kernels take of each card, compiled without one: a table of every tile.

Run: python benchmarks/kernels_aot.py (TRITON_CACHE_DIR keeps what is compiled, so that a second
run only disassembles).  A pool of processes, one a core, shares the kernels of all cards and
types.  Each cell is registers a thread / KiB of shared memory a block, the larger figure of the
split and the unsplit kernel.  Where there are faults (spills, too much shared memory, no
tensor-core instruction) it is marked with !, or with ' where registers are spilt outside of loops
and nothing else is wrong; each has a line below the table, and the exit status is 1.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
import triton  # type: ignore[import-untyped]

from specinfer_kernels.aot import SHARED_LIMIT, CompileOnly, Usage
from specinfer_kernels.tree_attention.launch import TileShape
from specinfer_kernels.warm import DTYPES, TILES, VOCABULARIES, Case, Heads, sampling

HEADS = ("9/3/64", "32/32/80", "32/32/96", "32/8/128", "4/1/256", "8/4/256/4096/50")
TARGETS = tuple(f"{card} {dtype}" for dtype in DTYPES for card in SHARED_LIMIT)
# What --quick compiles of it: every width's code on the A10G (96 is compiled as 80 is), every tile
# of the commonest width on the cards with HBM, and its largest tile where columns are like sm_86's.
WIDTHS = ("9/3/64", "32/32/80", "32/8/128", "8/4/256/4096/50")
COMMON = dict.fromkeys(("90 bf16", "80 bf16", "89 bf16", "86 fp16"), ("32/8/128",))
ALIKE = ("89 bf16", "86 fp16")
QUICK = {"86 bf16": WIDTHS, "86 fp32": WIDTHS} | COMMON
Cell = tuple[str, str, Usage, list[str]]  # target, tile, usage, faults


def cases(target: str, heads: Iterable[str], least: int) -> Iterator[tuple[str, Case]]:
    """Yield a card's launches in one dtype whose code differs, of tiles of at least `least`."""
    dtype = DTYPES[target.split()[1]]
    for head in map(Heads.parse, heads):
        shapes: dict[TileShape, int] = {}
        for tile in TILES:
            shapes.setdefault(Case(head, dtype, 16, tile, True).shape, tile)
        for tile in (tile for tile in shapes.values() if tile >= least):
            for split in (False, True):
                yield target, Case(head, dtype, 16, tile, split)


def measured(target: str, case: Case) -> Cell:
    """Compile one launch, and read off what its attention takes."""
    capability = int(target.split()[0])
    device = CompileOnly(capability)
    device.activate()
    case.launch()
    binary = next(binary for binary in device.take() if binary.name == "attend_tile")
    usage = binary.usage()
    faults = usage.faults(capability, tensor_cores=case.dtype != torch.float32)
    return target, str(case).removesuffix(" split"), usage, faults


def sampled(capability: int) -> list[Cell]:
    """Compile what samples, for vocabularies of both kinds."""
    device = CompileOnly(capability)
    device.activate()
    cells: list[Cell] = []
    for label, launch in (each for vocab in VOCABULARIES for each in sampling(vocab)):
        launch()
        for binary in device.take():
            usage = binary.usage()
            faults = usage.faults(capability, tensor_cores=False)
            cells.append((f"{capability} fp32", f"{binary.name} {label}", usage, faults))
    return cells


def table(targets: Iterable[str], cells: Iterable[Cell]) -> str:
    """Return the table of all tiles, one line each, and a line for each fault."""
    tiles: dict[str, dict[str, tuple[int, int, str]]] = defaultdict(dict)
    said = []
    for target, tile, usage, faults in cells:
        registers, shared, mark = tiles[tile].get(target, (0, 0, ""))
        if faults:
            mark = "'" if faults[1:] == [] and usage.spills > usage.looped == 0 else "!"
        tiles[tile][target] = max(registers, usage.registers), max(shared, usage.shared), mark
        said += [f"! sm_{target} {tile}: {fault}" for fault in faults]
    lines = [f"{'tile':50} " + " ".join(f"{'sm_' + target:>9}" for target in targets)]
    for tile, found in tiles.items():
        shown = [
            f"{found[t][0]}/{found[t][1] / 1024:.0f}{found[t][2]}" if t in found else "-"
            for t in targets
        ]
        lines.append(f"{tile:50} " + " ".join(f"{each:>9}" for each in shown))
    return "\n".join(lines + said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", action="append", help="heads/kv_heads/width; repeatable")
    parser.add_argument("--target", choices=TARGETS, action="append", help="card and dtype")
    parser.add_argument("--quick", action="store_true", help="a sixth of it, all cards and types")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    wish = parser.parse_args()
    every = dict.fromkeys(wish.target or TARGETS, wish.heads or HEADS)
    wanted = QUICK if wish.quick else every
    least = {target: max(TILES) if wish.quick and target in ALIKE else 0 for target in wanted}
    tasks = [each for target in wanted for each in cases(target, wanted[target], least[target])]
    with ProcessPoolExecutor(wish.jobs, get_context("spawn")) as pool:
        cells = list(pool.map(measured, *zip(*tasks, strict=True)))
        samplers = [cell for card in pool.map(sampled, SHARED_LIMIT) for cell in card]
    print(f"Triton {triton.__version__}, pages of 16 slots: registers a thread / KiB a block")
    print(table(wanted, cells))
    print(table([f"{capability} fp32" for capability in SHARED_LIMIT], samplers))
    return int(any(cell[-1] for cell in cells + samplers))


if __name__ == "__main__":
    sys.exit(main())
