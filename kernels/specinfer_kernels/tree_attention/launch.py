"""How a GPU cuts a step: tile shapes by head layout, and splits by how busy the card is.

Host arithmetic only, so it is tested, and compiled ahead of time, without a GPU.
"""

from dataclasses import dataclass

import torch

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch

MAX_SPLITS = 32  # the combine kernel holds that many partial rows at once
MIN_SPLIT_KEYS = 256  # fewer keys take less time than combining them
PROGRAMS_PER_MULTIPROCESSOR = 4  # enough waiting loads to keep the memory busy
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
) -> Launch:
    """Size a launch by the batch's host-side limits alone."""
    if batch.rows * heads * width >= 1 << 31:
        raise KernelError(f"{batch.rows} rows of {heads} heads of {width} exceed 2^31 elements")
    group = heads // kv_heads
    shape = tile_shape(batch.max_rows, group, width, dtype)
    tiles = -(-batch.max_rows * group // shape.block_m)
    span = batch.max_total if window is None else min(batch.max_total, window)
    programs = tiles * kv_heads * batch.requests
    splits = split_keys(span, programs, multiprocessors, shape.block_n)
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
    packed = max(16, 1 << (max_rows * group - 1).bit_length())
    odd = padded(width) != width
    if dtype == torch.float32:  # ieee products run outside the tensor cores: small tiles
        wide = width > 64  # then 4 warps spill
        return TileShape(16, 16 if wide else 32, 8 if wide else 4, 2)
    if padded(width) > 128:  # a tile of 32 rows spills on one card or another
        return TileShape(16, 32, 4, 2) if packed <= 16 else TileShape(64, 32, 8, 2)
    # Found by compiling with Triton 3.6 and 3.9: from 64 rows on, a block of 64 keys needs more
    # registers than there are, and at widths that are no power of two from 32 rows on; so does a
    # third stage there, and above width 64 beside 64 keys.
    block_n = 64 if packed <= (16 if odd else 32) else 32
    stages = 2 if odd or (width > 64 and block_n == 64) else 3
    return TileShape(min(packed, 128), block_n, 4 if packed <= 64 else 8, stages)


def split_keys(span: int, programs: int, multiprocessors: int, block_n: int) -> Splits:
    """Cut `span` keys so that `programs` tiles a split occupy all multiprocessors."""
    wanted = -(-PROGRAMS_PER_MULTIPROCESSOR * multiprocessors // programs)
    count = max(1, min(wanted, span // MIN_SPLIT_KEYS, MAX_SPLITS))
    blocks = max(1, -(-span // (count * block_n)))
    return Splits(max(1, -(-span // (blocks * block_n))), blocks * block_n)
