"""How much of the drafted trees is worth verifying, for the whole batch at once.

A node earns its place by the chance that it stands; a row costs what the measured cost model
says, and a tree that is verified has its drafting to pay for.  The nodes of all requests compete,
likeliest first, and as many are kept as make the most expected tokens a millisecond.  None at all
is a choice like any other: it leads to fewer drafts.
"""

from collections.abc import Sequence

import numpy as np

from specinfer.cost_model import CostModel
from specinfer.token_tree import ROOT, TokenTree

GAIN = 1.08  # what a draft must promise over none: the best of many noisy estimates flatters


def worth_verifying(
    chances: Sequence[Sequence[float]], rows: int, cost: CostModel, upkeep: float = 0.0
) -> list[set[int]]:
    """Return the nodes to keep of each tree; with a node its whole path is kept.

    chances[i][n] is the estimated probability that node n of tree i stands, never above its
    parent's; rows are those that take part in any case, the roots among them; upkeep is
    what drafting takes, in milliseconds.
    """
    nodes = sorted(
        (-chance, tree, node)
        for tree, own in enumerate(chances)
        for node, chance in enumerate(own)
        if node != ROOT
    )
    expected = len(chances) + np.cumsum([0.0, *(-chance for chance, _, _ in nodes)])
    costs = cost.costs(len(chances), np.arange(rows, rows + len(nodes) + 1))
    costs[1:] += upkeep
    rates = expected / costs
    best = int(np.argmax(rates))
    if not cost.knows_plain(len(chances)) or rates[best] < GAIN * rates[0]:
        best = 0
    kept: list[set[int]] = [{ROOT} for _ in chances]
    for _, tree, node in nodes[:best]:
        kept[tree].add(node)
    return kept


def pruned(tree: TokenTree, kept: set[int]) -> TokenTree:
    """Return the tree of the kept nodes, which must contain their ancestors.

    Only draws chosen outright may be dropped for what they are: callers keep all others.
    """
    if len(kept) == len(tree):
        return tree
    smaller = TokenTree.rooted_at(tree.tokens[ROOT])
    image = {ROOT: ROOT}
    for node, draws in enumerate(tree.draws):
        for draw in draws if node in image else ():
            if draw.child in kept:
                image[draw.child] = smaller.add(
                    image[node],
                    tree.tokens[draw.child],
                    draw.law,
                    drafter=draw.drafter,
                    without=draw.without,
                    key=draw.key,
                )
    return smaller
