"""The GPU kernels of tree attention: split-KV flash attention over pages, then the combination.

Paper, section 4.2 (one fused kernel for all nodes of a tree), on tensor cores: the query heads
of one key/value head and the rows of a tree are packed into the M dimension of the products, so
a tree reads its keys and values once.  Context keys need no mask; tree keys are walked in blocks
that lie within one 64-bit ancestor word.
"""

# Triton's language only looks like Python, and a kernel is one long function by nature.
# mypy: ignore-errors
# ruff: noqa: C901, PLR0915

import os

import triton
import triton.language as tl

# Triton's interpreter multiplies the raw bits of bfloat16 operands and cuts bits off instead of
# rounding; `_dot` and `_narrow` see to it that it computes what the GPU does.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _dot(a, b):
    """Multiply with float32 accumulation; float32 operands keep all their bits."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _narrow(x, dtype: tl.constexpr):
    """Round float32 to the nearest of dtype."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        x = (bits + 0x7FFF + ((bits >> 16) & 1)).to(tl.float32, bitcast=True)
    return x.to(dtype)


@triton.jit
def _scores(q, k, scale, softcap, HAS_CAP: tl.constexpr):
    """Return scores in units of log 2."""
    s = _dot(q, k)
    if HAS_CAP:
        # tanh by exp2 goes to its limits without a NaN when exp2 overflows; near 0, where 1 - 2 / 2
        # would lose its digits, by its series, whose next term is 1e-8 of the sum at 1/4.
        x = s * (scale / softcap)
        far = 1 - 2 / (tl.exp2(x * (2 * LOG2_E)) + 1)
        y = x * x
        near = x * (1 + y * (-1 / 3 + y * (2 / 15 + y * (-17 / 315 + y * (62 / 2835)))))
        return tl.where(y < 1 / 16, near, far) * (softcap * LOG2_E)
    return s * (scale * LOG2_E)


@triton.jit
def _take(q, K, V, kv_at, valid, seen, top, total, acc, scale, softcap, D, HAS_CAP: tl.constexpr):
    """Take the block of keys and values at kv_at into the running softmax.

    valid is [N], what may be read; seen broadcasts to [M, N], what each row may see.
    """
    width = tl.arange(0, acc.shape[1])
    in_width = width < D
    spread = kv_at[:, None] + width[None, :]
    readable = valid[:, None] & in_width
    k = tl.load(K + spread, mask=readable, other=0.0)
    s = tl.where(seen, _scores(q, tl.trans(k), scale, softcap, HAS_CAP), float("-inf"))
    new_top = tl.maximum(top, tl.max(s, 1))
    safe = tl.where(new_top == float("-inf"), 0.0, new_top)  # a row that has seen nothing yet
    p = tl.exp2(s - safe[:, None])
    shrink = tl.exp2(top - safe)
    v = tl.load(V + spread, mask=readable, other=0.0)
    acc = acc * shrink[:, None] + _dot(_narrow(p, v.dtype), v)
    return new_top, total * shrink + tl.sum(p, 1), acc


@triton.jit
def _addresses(pages, logical, valid, stride, head_at, PAGE_SIZE: tl.constexpr):
    """Return where one head's keys of these logical slots begin in a pool [S, K, D]."""
    logical = logical.to(tl.uint32)  # division by a power of two is then a shift
    page = tl.load(pages + logical // PAGE_SIZE, mask=valid, other=0)
    slot = page * PAGE_SIZE + (logical % PAGE_SIZE).to(tl.int32)
    return slot.to(tl.int64) * stride + head_at


@triton.jit(do_not_specialize=["kv_heads", "table", "words", "split_keys", "splits", "window"])
def attend_tile(
    Q,  # [N, H, D]
    K,  # [S, K, D]
    V,
    OUT,  # [N, H, D], or [N, H, splits, D] in float32
    LSE,  # [N, H, splits], in units of log 2
    STARTS,
    CONTEXTS,
    PAGES,
    ANCESTORS,
    POSITIONS,
    kv_heads,
    table,
    words,
    split_keys,
    splits,
    window,
    scale,
    softcap,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    TREE_N: tl.constexpr,  # at most 32: half an ancestor word
    SPLIT: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_CAP: tl.constexpr,
):
    """One program: a tile of one tree's rows, one key/value head, one run of the context."""
    tile = tl.program_id(0)
    kv_head = tl.program_id(1) % kv_heads
    split = tl.program_id(1) // kv_heads
    request = tl.program_id(2)

    first = tl.load(STARTS + request)
    rows = tl.load(STARTS + request + 1) - first
    context = tl.load(CONTEXTS + request)
    if tile * BLOCK_M >= rows * GROUP:
        return

    packed = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    row = packed // GROUP
    real = row < rows
    width = tl.arange(0, D_BLOCK)
    in_width = width < D
    q_at = ((first + row) * kv_heads + kv_head) * GROUP + packed % GROUP

    base = 0  # the first key that any row of this request can see
    if HAS_WINDOW:
        base = tl.maximum(context - window + 1, 0)
    live = tl.maximum(tl.cdiv(context - base, split_keys), 1)
    if SPLIT and split >= live:
        tl.store(LSE + q_at * splits + split, float("-inf"), mask=real)
        return

    q = tl.load(Q + q_at[:, None] * D + width[None, :], mask=real[:, None] & in_width, other=0.0)
    pages = PAGES + request.to(tl.int64) * table
    row_at = tl.load(POSITIONS + first + row, mask=real, other=0)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D_BLOCK], tl.float32)

    begin = base + split * split_keys
    end = tl.minimum(begin + split_keys, context)
    for block in range(begin, end, BLOCK_N):
        logical = block + tl.arange(0, BLOCK_N)
        valid = logical < end
        seen = valid[None, :]
        if HAS_WINDOW:
            seen = seen & (row_at[:, None] - logical[None, :] < window)
        at = _addresses(pages, logical, valid, kv_heads * D, kv_head * D, PAGE_SIZE)
        top, total, acc = _take(
            q, K, V, at, valid, seen, top, total, acc, scale, softcap, D, HAS_CAP
        )

    tree_end = 0  # only the last run reads the tree, and none of it below the tile's last row
    if split == live - 1:
        tree_end = tl.minimum(rows, (tile * BLOCK_M + BLOCK_M - 1) // GROUP + 1)
    for block in range(0, tree_end, TREE_N):
        other = block + tl.arange(0, TREE_N)
        valid = other < tree_end
        word = tl.load(ANCESTORS + (first + row) * words + block // 64, mask=real, other=0)
        bits = (word >> block % 64).to(tl.int32)  # half a word: half the registers
        seen = ((bits[:, None] >> tl.arange(0, TREE_N)[None, :]) & 1 == 1) & valid[None, :]
        if HAS_WINDOW:
            other_at = tl.load(POSITIONS + first + other, mask=valid, other=0)
            seen = seen & (row_at[:, None] - other_at[None, :] < window)
        at = _addresses(pages, context + other, valid, kv_heads * D, kv_head * D, PAGE_SIZE)
        top, total, acc = _take(
            q, K, V, at, valid, seen, top, total, acc, scale, softcap, D, HAS_CAP
        )

    nonzero = tl.where(total > 0, total, 1.0)
    at = q_at
    if SPLIT:
        at = q_at * splits + split
        lse = tl.where(total > 0, top + tl.log2(nonzero), float("-inf"))
        tl.store(LSE + at, lse, mask=real)
    out = _narrow(acc / nonzero[:, None], OUT.dtype.element_ty)
    tl.store(OUT + at[:, None] * D + width[None, :], out, mask=real[:, None] & in_width)


@triton.jit(do_not_specialize=["splits"])
def combine_splits(
    PARTIAL,  # [N, H, splits, D] float32
    LSE,  # [N, H, splits], in units of log 2
    OUT,  # [N, H, D]
    splits,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """One program: one row and head; partial results weigh what their keys weighed."""
    at = tl.program_id(0).to(tl.int64)
    width = tl.arange(0, D_BLOCK)
    split = tl.arange(0, MAX_SPLITS)
    lses = tl.load(LSE + at * splits + split, mask=split < splits, other=float("-inf"))
    top = tl.max(lses, 0)
    top = tl.where(top == float("-inf"), 0.0, top)  # a row of padding: all -inf
    total = tl.sum(tl.exp2(lses - top), 0)
    out = tl.zeros([D_BLOCK], tl.float32)
    for first in range(0, splits, AT_ONCE):
        some = first + tl.arange(0, AT_ONCE)
        lse = tl.load(LSE + at * splits + some, mask=some < splits, other=float("-inf"))
        wanted = (lse > float("-inf"))[:, None] & (width < D)[None, :]
        part = PARTIAL + (at * splits + some)[:, None] * D + width[None, :]
        out += tl.sum(tl.load(part, mask=wanted, other=0.0) * tl.exp2(lse - top)[:, None], 0)
    out = out / tl.where(total > 0, total, 1.0)
    tl.store(OUT + at * D + width, _narrow(out, OUT.dtype.element_ty), mask=width < D)
