"""The GPU kernel of warp_rows: one program a row, thresholds found by search instead of a sort.

Top-k and top-p both keep what lies above a threshold, and of the entries that equal it as many as
there is room for.  A search weighs the entries above several cuts at once, then goes on with those
between two of them, which it collects in the row's own output.
"""

# Triton's language only looks like Python.
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _block(ROW, block, count, BLOCK: tl.constexpr):
    """Return BLOCK entries; -inf beyond the end, and for what is no number."""
    ids = block + tl.arange(0, BLOCK)
    x = tl.load(ROW + ids, mask=ids < count, other=float("-inf"))
    return tl.where(x > float("-inf"), x, float("-inf"))


@triton.jit
def _weights(x, top, cold):
    """Return what is in proportion to probabilities: 1 at top; with cold 0, 1 everywhere."""
    possible = x > float("-inf")
    return tl.where(possible, tl.exp(tl.where(possible, x - top, 0.0) * cold), 0.0)


@triton.jit
def _search(
    ROW, SPARE, count, top, cold, low, high, target, CUTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the largest entry at and above which entries weigh `target`, and what those above do.

    low and high are entries; low itself is returned where nothing above it weighs enough.  Each
    round either finds high or leaves it out, so rounds end, whatever rounding does.
    """
    source = ROW
    above = 0.0
    searching = low <= high
    while searching:
        share = (tl.arange(0, CUTS) + 1).to(tl.float32) / CUTS
        cuts = tl.minimum(low * (1 - share) + high * share, high)
        cuts = tl.where((cuts > low) & (share < 1), cuts, high)
        weight = tl.zeros([CUTS, BLOCK], tl.float32)
        for block in range(0, count, BLOCK):
            x = _block(source, block, count, BLOCK)
            w = _weights(x, top, cold)
            weight += tl.where(x[None, :] >= cuts[:, None], w[None, :], 0.0)
        reached = above + tl.sum(weight, 1)
        enough = reached >= target
        begin = tl.max(tl.where(enough, cuts, low), 0)
        end = tl.min(tl.where(enough, float("inf"), cuts), 0)
        above = tl.max(tl.where(enough, above, reached), 0)

        lows = tl.full([BLOCK], float("inf"), tl.float32)
        highs = tl.full([BLOCK], float("-inf"), tl.float32)
        kept = 0
        for block in range(0, count, BLOCK):
            x = _block(source, block, count, BLOCK)
            inside = (x >= begin) & (x < end)
            place = kept + tl.cumsum(inside.to(tl.int32), 0) - 1
            tl.debug_barrier()  # the source may be the spare row: all read before any is written
            tl.store(SPARE + place, x, mask=inside)
            lows = tl.where(inside, tl.minimum(lows, x), lows)
            highs = tl.where(inside, tl.maximum(highs, x), highs)
            kept += tl.sum(inside.to(tl.int32), 0)
        tl.debug_barrier()
        source = SPARE
        count = kept
        low = tl.min(lows, 0)
        high = tl.max(highs, 0)
        searching = low < high
    return low, above


@triton.jit
def _kept(x, w, floor, room, seen, least):
    """Return the weights of what stays, and how many entries equal to the floor were met."""
    equal = (x == floor).to(tl.int32)
    count = seen + tl.sum(equal, 0)
    keep = x >= floor
    if count > room:
        keep = (x > floor) | ((equal > 0) & (seen + tl.cumsum(equal, 0) <= room))
    return tl.where(keep & (w >= least), w, 0.0), count


@triton.jit
def _mass(ROW, V, top, cold, floor, room, least, BLOCK: tl.constexpr):
    """Return what a row's kept entries weigh."""
    total = tl.zeros([BLOCK], tl.float32)
    seen = 0
    for block in range(0, V, BLOCK):
        x = _block(ROW, block, V, BLOCK)
        w, seen = _kept(x, _weights(x, top, cold), floor, room, seen, least)
        total += w
    return tl.sum(total, 0)


@triton.jit(do_not_specialize_on_alignment=["TEMPERATURE", "TOP_K", "TOP_P", "MIN_P"])
def warp_row(
    LOGITS,  # [N, V]
    LAWS,  # [N, V]; a row is scratch until its law is written
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    V,
    COLDEST: tl.constexpr,
    CUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: one row."""
    row = tl.program_id(0).to(tl.int64)
    logits = LOGITS + row * V
    law = LAWS + row * V
    highs = tl.full([BLOCK], float("-inf"), tl.float32)
    lows = tl.full([BLOCK], float("inf"), tl.float32)
    for block in range(0, V, BLOCK):
        x = _block(logits, block, V, BLOCK)
        highs = tl.maximum(highs, x)
        lows = tl.where(x > float("-inf"), tl.minimum(lows, x), lows)
    top = tl.max(highs, 0)
    bottom = tl.min(lows, 0)

    cold = 1.0 / tl.maximum(tl.load(TEMPERATURE + row), COLDEST)
    top_k = tl.load(TOP_K + row)
    top_p = tl.load(TOP_P + row)
    floor = float("-inf")
    room = V
    if (top_k > 0) & (top_k < V):
        wanted = top_k.to(tl.float32)
        floor, above = _search(logits, law, V, top, 0.0, bottom, top, wanted, CUTS, BLOCK)
        room = top_k - above.to(tl.int32)
    if top_p < 1:
        target = top_p * _mass(logits, V, top, cold, floor, room, 0.0, BLOCK)
        low = tl.maximum(bottom, floor)
        found, above = _search(logits, law, V, top, cold, low, top, target, CUTS, BLOCK)
        # Each of the equals weighs the same: as many stay as it takes to reach the target.
        weight = _weights(found, top, cold)
        missing = tl.where(weight > 0, (target - above) / weight, V)
        wanted = tl.maximum(tl.ceil(tl.minimum(missing, V)).to(tl.int32), 1)
        room = tl.where(found == floor, tl.minimum(room, wanted), wanted)
        floor = found
    least = tl.load(MIN_P + row)
    scale = 1.0 / _mass(logits, V, top, cold, floor, room, least, BLOCK)
    seen = 0
    for block in range(0, V, BLOCK):
        x = _block(logits, block, V, BLOCK)
        w, seen = _kept(x, _weights(x, top, cold), floor, room, seen, least)
        ids = block + tl.arange(0, BLOCK)
        tl.store(law + ids, w * scale, mask=ids < V)
