"""The GPU kernel of draw_tokens: one program a row, which inverts its distribution function.

In two levels: a block is chosen by the running sum of blocks, then a token by one within the block,
drawn out to fit.  Running sums are float64: over 150k tokens a float32 one is off by more than a
rare token's mass.
"""

# Triton's language only looks like Python.
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def first_place(possible, passed):
    """Return the first place that is possible and passed; else the last possible; else -1."""
    place = tl.arange(0, possible.shape[0])
    found = tl.min(tl.where(possible & passed, place, possible.shape[0]), 0)
    last = tl.max(tl.where(possible, place, -1), 0)
    return tl.where(found < possible.shape[0], found, last)


@triton.jit
def chosen_block(sums, uniform):
    """Return the block in which a number in [0, 1) falls, -1 where all are empty, and how far in.

    sums are [BLOCKS] float64.
    """
    place = tl.arange(0, sums.shape[0])
    rising = tl.cumsum(sums, 0)
    point = tl.max(rising, 0) * uniform
    block = first_place(sums > 0, rising > point)
    before = tl.sum(tl.where(place == block - 1, rising, 0.0), 0)
    own = tl.sum(tl.where(place == block, sums, 0.0), 0)
    return block, (point - before) / tl.where(own > 0, own, 1.0)


@triton.jit
def place_within(x, share):
    """Return where in a block the given share of its mass is passed, -1 in an empty one."""
    rising = tl.cumsum(x.to(tl.float64), 0)
    return first_place(x > 0, rising > tl.max(rising, 0) * share)


@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=["UNIFORMS", "TOKENS"])
def draw_row(
    LAWS,  # [N, V]
    UNIFORMS,  # [N, K]
    TOKENS,  # [N, K]
    V,
    count,
    REPLACEMENT: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: one row's draws, one after the other."""
    row = tl.program_id(0).to(tl.int64)
    law = LAWS + row * V
    tokens = TOKENS + row * count
    places = tl.arange(0, BLOCKS)
    sums = tl.zeros([BLOCKS], tl.float64)
    for block in range(0, V, BLOCK):
        ids = block + tl.arange(0, BLOCK)
        mass = tl.sum(tl.load(law + ids, mask=ids < V, other=0.0), 0)
        sums = tl.where(places == block // BLOCK, mass.to(tl.float64), sums)
    for turn in range(count):
        block, share = chosen_block(sums, tl.load(UNIFORMS + row * count + turn))
        ids = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(law + ids, mask=(ids >= 0) & (ids < V), other=0.0)
        if not REPLACEMENT:
            for earlier in range(turn):
                x = tl.where(ids == tl.load(tokens + earlier), 0.0, x)
        place = place_within(x, share)
        token = tl.where(place >= 0, block * BLOCK + place, -1)
        tl.store(tokens + turn, token.to(tl.int64))
        if not REPLACEMENT:
            tl.debug_barrier()  # other threads read the token
            rest = tl.sum(tl.where(ids == token, 0.0, x), 0)
            sums = tl.where(places == block, rest.to(tl.float64), sums)
