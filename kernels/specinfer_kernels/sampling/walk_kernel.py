"""The GPU kernels of walk_trees: one program a tree (paper, Algorithm 2; arXiv 2505.12398).

A walk changes no law.  What a node still owes after rejections is made anew from the LLM's law
and those of the rejected draws wherever it is wanted: for a few draws beneath a node that reads
as much as keeping it would read and write, needs no memory, and leaves the law of a node that two
draws led to as it was.
"""

# Triton's language only looks like Python.
# mypy: ignore-errors

import triton
import triton.language as tl

from specinfer_kernels.sampling.draw_kernel import chosen_block, place_within

# Parts of one buffer lie as they may: one compiled kernel serves them all.
ANYWHERE = (
    *("STARTS", "ROOTS", "CHILDREN", "TOKENS", "PROPOSAL", "ADDRESSES", "WITHOUT"),
    *("BELOW", "FOLLOWING", "ABOVE", "UNIFORMS", "RESTS", "SCALES", "STATES"),
)


@triton.jit
def _law(draw, drawn):
    """Return where the law that a draw followed lies."""
    TOKENS, PROPOSAL, ADDRESSES, WITHOUT, wide, RESTS, FOLLOWING, SCALES, ALIGNED = drawn
    address = tl.load(ADDRESSES + tl.load(PROPOSAL + draw))
    law = address.to(tl.pointer_type(tl.float32))
    if ALIGNED:
        law = tl.multiple_of(law, 16)
    return law


@triton.jit
def _left(q, ids, draw, WITHOUT, wide):
    """Return a law's entries but for those drawn before."""
    for place in range(draw * wide, draw * wide + wide):
        q = tl.where(ids == tl.load(WITHOUT + place), 0.0, q)
    return q


@triton.jit
def _proposed(ids, inside, draw, drawn):
    """Return what a draw followed at these ids: at a token chosen outright, all there is."""
    TOKENS, PROPOSAL, ADDRESSES, WITHOUT, wide, RESTS, FOLLOWING, SCALES, ALIGNED = drawn
    q = tl.where(ids == tl.load(TOKENS + draw), float("inf"), 0.0)
    if tl.load(PROPOSAL + draw) >= 0:
        q = tl.load(_law(draw, drawn) + ids, mask=inside, other=0.0)
        q = _left(q, ids, draw, WITHOUT, wide) / tl.load(RESTS + draw)
    return q


@triton.jit
def _owed(row, ids, inside, first, stop, drawn):
    """Return what is left at these ids, in proportion, of a row's law after draws first to stop."""
    TOKENS, PROPOSAL, ADDRESSES, WITHOUT, wide, RESTS, FOLLOWING, SCALES, ALIGNED = drawn
    r = tl.load(row + ids, mask=inside, other=0.0)
    draw = first
    while draw != stop:
        scale = tl.load(SCALES + draw)
        if scale >= 0:
            r = tl.maximum(r * scale - _proposed(ids, inside, draw, drawn), 0.0)
        draw = tl.load(FOLLOWING + draw)
    return r


@triton.jit
def _rest(draw, V, drawn, BLOCK: tl.constexpr):
    """Return what the law of a draw sums to without the tokens drawn before; 1 without any."""
    TOKENS, PROPOSAL, ADDRESSES, WITHOUT, wide, RESTS, FOLLOWING, SCALES, ALIGNED = drawn
    rest = 1.0
    if tl.load(WITHOUT + draw * wide, mask=wide > 0, other=-1) >= 0:
        law = _law(draw, drawn)
        total = tl.zeros([BLOCK], tl.float32)
        for block in range(0, V, BLOCK):
            ids = block + tl.arange(0, BLOCK)
            q = tl.load(law + ids, mask=ids < V, other=0.0)
            total += _left(q, ids, draw, WITHOUT, wide)
        rest = tl.sum(total, 0)
    return rest


@triton.jit
def _chance(row, first, draw, norm, V, drawn, BLOCK: tl.constexpr):
    """Return how much likelier than its proposal the LLM finds what was drawn."""
    TOKENS, PROPOSAL, ADDRESSES, WITHOUT, wide, RESTS, FOLLOWING, SCALES, ALIGNED = drawn
    tl.store(RESTS + draw, _rest(draw, V, drawn, BLOCK))
    tl.debug_barrier()  # before each thread reads it
    token = tl.load(TOKENS + draw)
    owed = _owed(row, token, token >= 0, first, draw, drawn)
    proposed = _proposed(token, token >= 0, draw, drawn)
    proposed = tl.where(tl.load(PROPOSAL + draw) >= 0, proposed, 1.0)
    return norm * owed.to(tl.float64) / proposed.to(tl.float64)


@triton.jit
def _rejected(row, first, draw, weight, norm, V, drawn, BLOCK: tl.constexpr):
    """Take a draw from what its parent owes; return the parent's new weight and norm."""
    TOKENS, PROPOSAL, ADDRESSES, WITHOUT, wide, RESTS, FOLLOWING, SCALES, ALIGNED = drawn
    stop = tl.load(FOLLOWING + draw)
    tl.store(SCALES + draw, (weight * norm).to(tl.float32))
    tl.debug_barrier()
    left = tl.zeros([BLOCK], tl.float32)
    for block in range(0, V, BLOCK):
        ids = block + tl.arange(0, BLOCK)
        left += _owed(row, ids, ids < V, first, stop, drawn)
    total = tl.sum(left, 0).to(tl.float64)
    if total > 0:
        norm = 1.0 / total
        weight = total / (total + (1.0 - weight))  # exactly 1 where it was
    else:  # nothing owed but rounding: the draw was certain, or nearly
        weight = tl.where(weight == 1.0, weight, 0.0)
        tl.store(SCALES + draw, -1.0)
        tl.debug_barrier()
    return weight, norm


@triton.jit
def _node(led, root, start, CHILDREN, BELOW, V):
    """Return the child of the draw `led`, the root for -1, its law, and the first draw beneath."""
    node = tl.load(CHILDREN + led, mask=led >= 0, other=0)
    return node, root + node.to(tl.int64) * V, tl.load(BELOW + led, mask=led >= 0, other=start)


@triton.jit
def _end(
    out, node, row, first, uniforms, used, V, drawn, BLOCKS: tl.constexpr, BLOCK: tl.constexpr
):
    """Draw the last token from what a node owes, and write the verdict."""
    places = tl.arange(0, BLOCKS)
    sums = tl.zeros([BLOCKS], tl.float64)
    for block in range(0, V, BLOCK):
        ids = block + tl.arange(0, BLOCK)
        mass = tl.sum(_owed(row, ids, ids < V, first, -1, drawn), 0)
        sums = tl.where(places == block // BLOCK, mass.to(tl.float64), sums)
    block, share = chosen_block(sums, tl.load(uniforms + used))
    ids = block * BLOCK + tl.arange(0, BLOCK)
    owed = _owed(row, ids, (ids >= 0) & (ids < V), first, -1, drawn)
    place = place_within(owed, share)
    tl.store(out, node.to(tl.int64))
    tl.store(out + 1, tl.where(place >= 0, block * BLOCK + place, -1).to(tl.int64))
    tl.store(out + 2, (used + 1).to(tl.int64))


@triton.jit
def _start(tree, LAWS, ROOTS, STARTS, V):
    """Return where the law after a tree's root lies, and the first draw beneath it, or -1."""
    start = tl.load(STARTS + tree)
    start = tl.where(start < tl.load(STARTS + tree + 1), start, -1)
    return LAWS + tl.load(ROOTS + tree).to(tl.int64) * V, start


@triton.jit(do_not_specialize=["wide", "numbers"], do_not_specialize_on_alignment=ANYWHERE)
def multi_step(
    OUT,  # [B, 3]
    LAWS,  # [N, V]
    STARTS,
    ROOTS,
    CHILDREN,
    TOKENS,
    PROPOSAL,
    ADDRESSES,  # of the proposals
    WITHOUT,
    BELOW,
    FOLLOWING,
    ABOVE,
    UNIFORMS,  # [B, U]
    RESTS,  # [D] scratch: sums of the laws that draws followed
    SCALES,  # [D] scratch: what a rejected draw was taken from; below 0: from nothing
    STATES,  # [D, 2] scratch
    V,
    wide,
    numbers,
    ALIGNED: tl.constexpr,  # whether every proposal lies on a multiple of 16 bytes
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: one tree, down while a draw is accepted."""
    tree = tl.program_id(0)
    drawn = (TOKENS, PROPOSAL, ADDRESSES, WITHOUT, wide, RESTS, FOLLOWING, SCALES, ALIGNED)
    uniforms = UNIFORMS + tree * numbers
    root, start = _start(tree, LAWS, ROOTS, STARTS, V)
    certain = tl.full([], 1.0, tl.float64)
    led = -1  # the draw that led to the node
    draw = start
    norm = certain  # by which what the node owes becomes a law
    used = 0
    while draw >= 0:
        node, row, first = _node(led, root, start, CHILDREN, BELOW, V)
        chance = _chance(row, first, draw, norm, V, drawn, BLOCK)
        if tl.load(uniforms + used) < chance:
            led = draw
            norm = certain
            draw = tl.load(BELOW + draw)
        else:
            _, norm = _rejected(row, first, draw, certain, norm, V, drawn, BLOCK)
            draw = tl.load(FOLLOWING + draw)
        used += 1
    node, row, first = _node(led, root, start, CHILDREN, BELOW, V)
    _end(OUT + 3 * tree, node, row, first, uniforms, used, V, drawn, BLOCKS, BLOCK)


@triton.jit(do_not_specialize=["wide", "numbers"], do_not_specialize_on_alignment=ANYWHERE)
def traversal(
    OUT,  # [B, 3]
    LAWS,  # [N, V]
    STARTS,
    ROOTS,
    CHILDREN,
    TOKENS,
    PROPOSAL,
    ADDRESSES,  # of the proposals
    WITHOUT,
    BELOW,
    FOLLOWING,
    ABOVE,
    UNIFORMS,  # [B, U]
    RESTS,  # [D] scratch: sums of the laws that draws followed
    SCALES,  # [D] scratch: what a rejected draw was taken from; below 0: from nothing
    STATES,  # [D, 2] scratch: weight and norm of its parent when a draw was tried
    V,
    wide,
    numbers,
    ALIGNED: tl.constexpr,  # whether every proposal lies on a multiple of 16 bytes
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: one tree, from each leaf up until a node is accepted."""
    tree = tl.program_id(0)
    drawn = (TOKENS, PROPOSAL, ADDRESSES, WITHOUT, wide, RESTS, FOLLOWING, SCALES, ALIGNED)
    uniforms = UNIFORMS + tree * numbers
    root, start = _start(tree, LAWS, ROOTS, STARTS, V)
    certain = tl.full([], 1.0, tl.float64)
    led = -1  # the draw that led to the node
    draw = start  # to be tried next beneath it
    weight = certain  # with which the node stands
    norm = certain  # by which what it owes becomes a law
    used = 0
    walking = True
    while walking:
        if draw >= 0:
            node, row, first = _node(led, root, start, CHILDREN, BELOW, V)
            chance = _chance(row, first, draw, norm, V, drawn, BLOCK)
            tl.store(STATES + 2 * draw, weight)
            tl.store(STATES + 2 * draw + 1, norm)
            weight = tl.minimum(weight * chance, 1.0)
            norm = certain
            led = draw
            draw = tl.load(BELOW + draw)
        else:
            walking = tl.load(uniforms + used) >= weight
            used += 1
            if walking:
                fallen = led
                tl.debug_barrier()  # what was stored on the way down is read
                weight = tl.load(STATES + 2 * fallen)
                norm = tl.load(STATES + 2 * fallen + 1)
                led = tl.load(ABOVE + fallen)
                node, row, first = _node(led, root, start, CHILDREN, BELOW, V)
                weight, norm = _rejected(row, first, fallen, weight, norm, V, drawn, BLOCK)
                draw = tl.load(FOLLOWING + fallen)
    node, row, first = _node(led, root, start, CHILDREN, BELOW, V)
    _end(OUT + 3 * tree, node, row, first, uniforms, used, V, drawn, BLOCKS, BLOCK)
