"""What a card should need for tree attention, predicted from machine code, without the card.

Run: python benchmarks/kernels_predict.py --card A10G (TRITON_CACHE_DIR keeps what is compiled).
It compiles the served tiles, runs their machine code on a model of a multiprocessor, and prints two
tables for the launches that `specinfer_kernels` would make.  Per block of keys and tile: which
part of a multiprocessor is busy for how long, beside the time in which its share of the memory's
bandwidth delivers the block.  Per context, batch and tree: microseconds, and the share of the
bandwidth floor.  All of it is a prediction; docs/kernels.md names what it assumes.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from cards import CARDS, Card, Kernel
from multiprocessor import busy

from specinfer_kernels.aot import CompileOnly
from specinfer_kernels.testing import batch_of, chain
from specinfer_kernels.tree_attention.launch import (
    COMBINED_AT_ONCE,
    Launch,
    TileShape,
    launch_of,
    padded,
)
from specinfer_kernels.warm import TILES, Case, Heads

LAUNCH = 2e-6  # seconds from one kernel's end to the next one's first instruction, in a graph
SPLIT = (False, True)
CONTEXTS, BATCHES, TREES = (4096, 16384), (1, 8, 32), (1, 8, 32, 64, 128)


@dataclass(frozen=True)
class Kernels:
    """All that a head layout launches on a card, in half precision."""

    card: Card
    heads: Heads
    attend: dict[tuple[int, bool], Kernel]  # by packed rows of the tile, and whether it splits
    shapes: dict[int, TileShape]
    combine: Kernel

    @classmethod
    def compiled(cls, card: Card, heads: Heads) -> "Kernels":
        device = CompileOnly(card.capability)
        device.activate()
        cases = [Case(heads, torch.bfloat16, 16, tile, split) for tile in TILES for split in SPLIT]
        attend, shapes, combine = {}, {}, None
        for case in cases:
            case.launch()
            for binary in device.take():
                if binary.name == "attend_tile":
                    attend[case.shape.block_m, case.split] = Kernel(card, binary, case.shape.warps)
                    shapes[case.shape.block_m] = case.shape
                else:
                    combine = Kernel(card, binary, 1)
        assert combine is not None
        return cls(card, heads, attend, shapes, combine)

    @property
    def fed(self) -> float:
        """Bytes a second of memory, as if masked lanes of widths beside powers of two loaded."""
        return self.card.copied * padded(self.heads.width) / self.heads.width

    def launch(self, context: int, batch: int, rows: int) -> Launch:
        return launch_of(
            batch_of([context] * batch, [chain(rows)] * batch, page_size=16),
            torch.bfloat16,
            self.card.multiprocessors,
            heads=self.heads.heads,
            kv_heads=self.heads.kv_heads,
            width=self.heads.width,
            window=None,
            stacked=self.card.stacked,
        )

    def floor(self, context: int, batch: int) -> float:
        """Return how long keys and values take to be read once."""
        moved = 4 * context * batch * self.heads.kv_heads * self.heads.width
        return moved / (self.card.copied)

    def roof(self, context: int, batch: int, rows: int) -> float:
        """Return the same, or how long the products take at the tensor cores' peak."""
        flop = 4 * rows * context * batch * self.heads.heads * self.heads.width
        peak = self.card.tensor * self.card.multiprocessors * self.card.clock
        return max(self.floor(context, batch), flop / peak)

    def seconds(self, launch: Launch, context: int, batch: int, rows: int) -> float:
        """Return how long an attention of one layer takes, both its kernels."""
        split = launch.splits.count > 1
        kernel = self.attend[launch.shape.block_m, split]
        taken = LAUNCH + self._attend(kernel, launch, context, rows)
        if split:
            results = batch * rows * self.heads.heads
            taken += self._scratch(results * self.heads.width * 4 * launch.splits.count)
            taken += LAUNCH + self._combine(results, -(-launch.splits.count // COMBINED_AT_ONCE))
        return taken

    def _attend(self, kernel: Kernel, launch: Launch, context: int, rows: int) -> float:
        tiles, heads, batch = launch.grid
        programs = tiles * heads * batch
        block_n = launch.shape.block_n
        turns = -(-min(launch.splits.keys, context) // block_n)
        trees = -(-rows // launch.options()["TREE_N"])
        uneven = turns * block_n * launch.splits.count / context  # shorter runs leave bandwidth
        room = self.card.multiprocessors * kernel.residents
        waves = -(-programs // room)
        last = programs - (waves - 1) * room
        blocks = -(-last // self.card.multiprocessors)
        taken = kernel.seconds((turns, 0), blocks, uneven * self._share(tiles, blocks, last))
        # One run in each context reads the tree, too, while the others are done.
        alone = self._share(tiles, 1, programs // launch.splits.count)
        taken += kernel.seconds((2, trees), 1, alone) - kernel.seconds((2, 0), 1, alone)
        if waves > 1:
            share = uneven * self._share(tiles, kernel.residents, room)
            turn = kernel.turn_seconds(kernel.residents, share)
            start = kernel.seconds((6, 0), kernel.residents, share) - 6 * turn
            taken += (waves - 1) * (turns * turn + start / kernel.residents)
        return taken

    def _share(self, tiles: int, blocks: int, programs: int) -> float:
        """Return the bytes a second of a multiprocessor that runs `blocks` of all programs.

        Tiles of one tree read the same keys, once from memory.
        """
        part = blocks / programs
        return min(tiles * self.fed * part, self.card.l2_bandwidth * part, 64 * self.card.clock)

    def _scratch(self, size: float) -> float:
        """Return how long partial results take to be written and read again.

        What half of L2 does not hold goes to memory and back.
        """
        beyond = max(0.0, size - self.card.l2_bytes / 2)
        return 2 * size / self.card.l2_bandwidth + 2 * beyond / (self.card.copied)

    def _combine(self, results: int, turns: int) -> float:
        multiprocessors = self.card.multiprocessors
        share = self.card.l2_bandwidth / multiprocessors
        waves, last = divmod(results, multiprocessors * self.combine.residents)
        taken = waves * self.combine.seconds((turns,), self.combine.residents, share)
        if last:
            taken += self.combine.seconds((turns,), -(-last // multiprocessors), share)
        return taken


def tile_lines(kernels: Kernels) -> Iterator[str]:
    """Yield what a block of keys costs each tile, in nanoseconds of one multiprocessor."""
    yield (
        "  M   N warps  registers KiB blocks  memory  tensor  issue  shared  one alone"
        "  one  all  bound by"
    )
    share = kernels.fed / kernels.card.multiprocessors
    for (rows, split), kernel in kernels.attend.items():
        shape = kernels.shapes[rows]
        if not split:
            continue
        clock, warps = kernels.card.clock, max(1, shape.warps // 4)
        taken = busy(kernel.turn, kernels.card.rates(share))
        bounds = {name: taken[name] * warps / clock for name in ("tensor", "issue", "shared")}
        bounds = {"memory": shape.block_n * 4 * padded(kernels.heads.width) / share} | bounds
        bounds["latency"] = kernel.turn_seconds(1, 1e15) / kernel.residents
        one, every = (kernel.turn_seconds(n, share) / n for n in (1, kernel.residents))
        nanoseconds = [round(each * 1e9) for each in (*bounds.values(), one, every)]
        nanoseconds[4] *= kernel.residents
        yield (
            f"{rows:3} {shape.block_n:3} {shape.warps:5} {kernel.usage.registers:10} "
            f"{kernel.usage.shared >> 10:3} {kernel.residents:6} "
            + "{:7} {:7} {:6} {:7} {:10} {:4} {:4}".format(*nanoseconds)
            + f"  {max(bounds, key=lambda name: bounds[name])}"
        )


def case_lines(kernels: Kernels) -> Iterator[str]:
    """Yield the time of each case, its share of the floor and the roof, and its ratio to a row."""
    yield "    B context rows splits programs      us  of floor  of roof  to one row"
    for batch, context in itertools.product(BATCHES, CONTEXTS):
        one_row = 0.0
        for rows in TREES:
            launch = kernels.launch(context, batch, rows)
            taken = kernels.seconds(launch, context, batch, rows)
            one_row = one_row or taken
            floor = kernels.floor(context, batch)
            yield (
                f"{batch:5} {context:7} {rows:4} {launch.splits.count:6} "
                f"{math.prod(launch.grid):8} {taken * 1e6:7.0f} {floor / taken:9.2f} "
                f"{kernels.roof(context, batch, rows) / taken:8.2f} {taken / one_row:11.2f}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", choices=CARDS, action="append", help="repeatable")
    parser.add_argument("--heads", type=Heads.parse, default=Heads(32, 8, 128))
    wish = parser.parse_args()
    for name in wish.card or ("A10G", "H200"):
        kernels = Kernels.compiled(CARDS[name], wish.heads)
        heads = wish.heads
        print(f"{name}, heads {heads.heads}/{heads.kv_heads}/{heads.width}, predicted")
        for line in (*tile_lines(kernels), "", *case_lines(kernels), ""):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
