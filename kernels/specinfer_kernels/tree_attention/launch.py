"""How a GPU cuts a step: tile shapes by head layout, and splits by how busy the card is.

Host arithmetic only, so it is tested, and compiled ahead of time, without a GPU.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch

MAX_SPLITS = 32  # the combine kernel holds that many weights
COMBINED_AT_ONCE = 8  # partial rows that it has on the way at a time
MIN_SPLIT_KEYS = 256  # fewer keys take less time than combining them
START_KEYS = 768  # keys that a program could take in the time of its start and of its result
# Page numbers come ahead of the keys, which are then two blocks ahead of the products; of 3 or 4
# stages Triton makes one block, loaded into the very buffer that was just read: nothing overlaps.
STAGES = 5
# Keys a block and warps by padded width and packed rows, in half precision: what neither spills on
# any card (benchmarks/results/kernels_aot.txt) nor is predicted to wait for anything but memory
# and tensor cores (docs/kernels.md).
HALF_TILES = {
    64: {16: (64, 4), 32: (64, 4), 64: (64, 4), 128: (64, 8)},
    128: {16: (32, 4), 32: (64, 4), 64: (32, 4), 128: (64, 8)},
    256: {16: (16, 4), 32: (16, 4), 64: (16, 8)},
}
WIDEST = max(HALF_TILES)
ODD_TILES = {16: (32, 4), 32: (32, 4), 64: (32, 4), 128: (32, 8)}  # widths 65..127: masked loads
FLOAT_TILES = {64: (16, 4), 128: (16, 8), 256: (16, 4)}  # the same in float32, for 16 rows
FP_FUSION = True  # said outright, since Triton 3.10 changes what happens when it is not
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class TileShape:
    """One program's tile: block_m packed (row, head) pairs against block_n keys at a time."""

    block_m: int
    block_n: int
    warps: int
    stages: int  # of the software pipeline over keys


@dataclass(frozen=True, slots=True)
class Splits:
    """The keys of a context are cut into `count` runs of `keys`; the last takes the tree too."""

    count: int
    keys: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything about one launch that the host decides."""

    grid: tuple[int, int, int]
    splits: Splits
    shape: TileShape
    group: int
    width: int

    def options(self) -> dict[str, int]:
        """Return what the kernel is specialised on by this launch."""
        return {
            "GROUP": self.group,
            "D": self.width,
            "D_BLOCK": padded(self.width),
            "BLOCK_M": self.shape.block_m,
            "BLOCK_N": self.shape.block_n,
            "TREE_N": min(32, self.shape.block_n),
            "num_warps": self.shape.warps,
            "num_stages": self.shape.stages,
            "enable_fp_fusion": FP_FUSION,
        }


def launch_of(
    batch: TreeBatch,
    dtype: torch.dtype,
    multiprocessors: int,
    *,
    heads: int,
    kv_heads: int,
    width: int,
    window: int | None,
    stacked: bool = False,
) -> Launch:
    """Size a launch by the batch's host-side limits alone."""
    if batch.rows * heads * width >= 1 << 31:
        raise KernelError(f"{batch.rows} rows of {heads} heads of {width} exceed 2^31 elements")
    group = heads // kv_heads
    shape = tile_shape(batch.max_rows, group, width, dtype)
    tiles = -(-batch.max_rows * group // shape.block_m)
    context = batch.max_total - 1  # at most: a request has a row, and keys of rows are not split
    span = context if window is None else min(context, window)
    programs = tiles * kv_heads * batch.requests
    splits = split_keys(span, programs, wave(shape, multiprocessors, stacked), shape.block_n)
    return Launch((tiles, kv_heads * splits.count, batch.requests), splits, shape, group, width)


def padded(width: int) -> int:
    """Return the head width as tiles hold it: the next power of two, at least 16."""
    return max(16, 1 << (width - 1).bit_length())


def tile_shape(max_rows: int, group: int, width: int, dtype: torch.dtype) -> TileShape:
    """Return the tile for trees of up to max_rows and `group` query heads a key/value head.

    A whole tree shares one tile, and so reads its keys once, up to 128 packed rows (64 for
    widths above 128); larger trees and prefill chunks take several, which meet in the L2 cache.
    """
    if dtype not in (*HALVES, torch.float32):
        raise KernelError(f"the triton backend attends in half precision or float32, not {dtype}")
    room = max(64, padded(width))
    if room not in HALF_TILES:
        raise KernelError(f"heads are {width} wide; the triton backend serves up to {WIDEST}")
    if dtype == torch.float32:  # ieee products run outside the tensor cores: small tiles
        return TileShape(16, *FLOAT_TILES[room], 2)
    tiles = ODD_TILES if room == 128 != width else HALF_TILES[room]
    packed = max(16, 1 << (max_rows * group - 1).bit_length())
    block_m = min(packed, max(tiles))
    return TileShape(block_m, *tiles[block_m], STAGES)


def wave(shape: TileShape, multiprocessors: int, stacked: bool) -> int:
    """Return how many programs a card should work on at once.

    One a multiprocessor, with two blocks of keys on the way, draws all that GDDR delivers; stacked
    memory (HBM) wants two, for which there is room except with 8 warps.
    """
    return multiprocessors * (2 if stacked and shape.warps == 4 else 1)


@lru_cache(maxsize=1024)  # all layers of a step ask alike
def split_keys(span: int, programs: int, wave: int, block_n: int) -> Splits:
    """Cut `span` keys so that the waves of `programs` tiles a split take the least time."""
    counts = range(1, max(1, min(span // MIN_SPLIT_KEYS, MAX_SPLITS)) + 1)
    count = min(counts, key=lambda n: -(-programs * n // wave) * (span / n + START_KEYS))
    blocks = max(1, -(-span // (count * block_n)))
    return Splits(max(1, -(-span // (blocks * block_n))), blocks * block_n)
