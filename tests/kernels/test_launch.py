"""Sizing of GPU launches: host arithmetic, the same with and without a GPU."""

import pytest
import torch

from specinfer_kernels import KernelError
from specinfer_kernels.testing import batch_of, chain
from specinfer_kernels.tree_attention.launch import (
    MAX_SPLITS,
    launch_of,
    split_keys,
    tile_shape,
    wave,
)


@pytest.mark.parametrize(
    ("rows", "group", "packed"), [(1, 1, 16), (4, 4, 16), (5, 4, 32), (16, 3, 64), (32, 4, 128)]
)
def test_a_whole_tree_and_its_heads_share_one_tile(rows: int, group: int, packed: int) -> None:
    assert tile_shape(rows, group, 128, torch.bfloat16).block_m == packed


def test_larger_trees_take_several_tiles() -> None:
    batch = batch_of([10], [chain(200)])
    launch = launch_of(batch, torch.float16, 1, heads=4, kv_heads=2, width=64, window=None)
    assert launch.shape.block_m == 128
    assert launch.grid == (4, 2, 1)


@pytest.mark.parametrize("span", [0, 1, 63, 64, 255, 256, 511, 4096, 32768, 100_001])
@pytest.mark.parametrize("programs", [1, 8, 80, 5000])
def test_splits_cover_every_key_and_none_is_empty(span: int, programs: int) -> None:
    splits = split_keys(span, programs, 80, 64)
    assert splits.keys % 64 == 0
    assert splits.count * splits.keys >= span
    assert (splits.count - 1) * splits.keys < max(span, 1)
    assert 1 <= splits.count <= MAX_SPLITS


def test_splits_fill_one_wave_and_a_busy_card_does_not_split() -> None:
    assert split_keys(16384, 8, 80, 64).count == 10
    assert split_keys(4096, 64, 80, 64).count == 1
    assert split_keys(200, 8, 80, 64).count == 1


def test_long_contexts_fill_waves_that_whole_contexts_would_leave_empty() -> None:
    assert split_keys(16384, 64, 80, 64).count == 5  # 4 full waves of a fifth, not 0.8 of one
    assert split_keys(4096, 96, 80, 64).count == 2


def test_a_context_is_cut_evenly_whatever_the_tree_adds() -> None:
    batch = batch_of([4096], [chain(1)])
    launch = launch_of(batch, torch.float16, 64, heads=32, kv_heads=8, width=128, window=None)
    assert (launch.splits.count, launch.splits.keys) == (8, 512)


def test_stacked_memory_wants_two_programs_where_they_fit() -> None:
    small, large = (tile_shape(rows, 4, 128, torch.bfloat16) for rows in (1, 32))
    assert wave(small, 80, stacked=False) == wave(large, 80, stacked=False) == 80
    assert wave(small, 80, stacked=True) == 160
    assert wave(large, 80, stacked=True) == 80


def test_a_window_bounds_the_keys_to_split() -> None:
    batch = batch_of([8000], [chain(1)])
    sizes = {"heads": 8, "kv_heads": 8, "width": 128}
    whole = launch_of(batch, torch.float16, 80, **sizes, window=None)
    near = launch_of(batch, torch.float16, 80, **sizes, window=512)
    assert whole.splits.count > near.splits.count == 2


def test_offsets_that_do_not_fit_an_int32_are_refused() -> None:
    batch = batch_of([0], [chain(2)])
    with pytest.raises(KernelError, match="exceed 2\\^31 elements"):
        launch_of(batch, torch.float16, 1, heads=1 << 22, kv_heads=1, width=256, window=None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_heads_too_wide_for_a_tile_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(KernelError, match="heads are 512 wide; the triton backend serves up to"):
        tile_shape(1, 1, 512, dtype)
    assert tile_shape(1, 1, 160, dtype) == tile_shape(1, 1, 256, dtype)
