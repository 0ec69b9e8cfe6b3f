"""A tree grown by itself over rows laid out once (paper, section 3.1): nothing waits but tokens.

With one request a pass of a small SSM takes 0.15 ms, and laying it out, level by level, takes
more.  Where the shape tells every node's row before a token is known, all rows are laid out
together, and those of the tree's unbranched beginning are run once instead of at every level.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specinfer.draft.children import is_plain
from specinfer.draft.draft import CachedDraft
from specinfer.kv_cache import KVCache
from specinfer.llm import CausalLM, Layout
from specinfer.tree_attention import Segment, plan

LONGEST = 63  # rows: their ancestors are bits of one word


def lay_out(
    ssm: CausalLM, cache: KVCache, draft: CachedDraft, pending: Sequence[int]
) -> Layout | None:
    """Lay out the tokens not cached yet and the tree below; None where that cannot be.

    Two draws may share a node, so of sampled trees only chains are known beforehand.
    """
    shape = draft.shape
    assert shape is not None
    known = is_plain(draft.request) or shape.nodes == shape.depth
    if not (known and draft.frontier) or len(pending) + shape.nodes > LONGEST:
        return None
    root = len(pending) - 1
    parents = [*range(-1, root), *(parent + root for parent in shape.parents[1:])]
    segment = Segment(draft.sequence, [0] * len(parents), parents, [root])
    return ssm.lay_out(plan(cache, [segment]))


@torch.inference_mode()
def grow_alone(
    layout: Layout, draft: CachedDraft, pending: Sequence[int], add: Callable[[Tensor], None]
) -> int:
    """Grow the tree; add takes the logits of its frontier.  Return how many passes it took.

    It ends early where a node got fewer children than the shape says: later rows would be wrong.
    """
    assert draft.shape is not None
    levels, tree = draft.shape.levels, draft.tree
    root, first, passes = len(pending) - 1, 0, 0
    while draft.frontier and len(tree) == sum(levels[: draft.level + 1]):
        tokens = [*pending, *tree.tokens[1:]][first:]
        rows = layout.run(tokens, first, [root + node for node in draft.frontier])
        passes, draft.computed = passes + 1, len(tree)
        if len(tree) == draft.level + 1:  # unbranched so far
            first = root + len(tree)
        add(rows)
    return passes
