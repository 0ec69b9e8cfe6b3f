"""The GPU kernel of commit_kv: one program moves a run of columns of one layer's keys or values."""

# Triton's language only looks like Python.
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["slots", "moved"])
def move_columns(
    KV,  # [L * 2, S, K * D]
    SOURCE,
    TARGET,
    slots,
    moved,
    width,
    MOVED_BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Read all moved rows of these columns, wait for the whole program, then write them.

    A slot may be one entry's source and another's target; since no other program touches these
    columns, waiting for this one suffices.
    """
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    entry = tl.arange(0, MOVED_BLOCK)
    inside = (entry < moved)[:, None] & (column < width)[None, :]
    plane = KV + tl.program_id(1).to(tl.int64) * slots * width + column[None, :]
    source = tl.load(SOURCE + entry, mask=entry < moved, other=0)
    target = tl.load(TARGET + entry, mask=entry < moved, other=0)
    values = tl.load(plane + source[:, None] * width, mask=inside)
    tl.debug_barrier()
    tl.store(plane + target[:, None] * width, values, mask=inside)
