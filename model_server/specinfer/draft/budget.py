"""How much of the drafted trees is worth verifying, for the whole batch at once.

A node earns its place by the chance that it stands; a row costs what the measured cost model
says.  The nodes of all requests compete, likeliest first, and as many are kept as make the most
expected tokens a millisecond.  None at all is a choice like any other.
"""

from collections.abc import Sequence

from specinfer.cost_model import CostModel
from specinfer.token_tree import ROOT, TokenTree


def worth_verifying(
    chances: Sequence[Sequence[float]], rows: int, cost: CostModel
) -> list[set[int]]:
    """Return the nodes to keep of each tree; with a node its whole path is kept.

    chances[i][n] is the estimated probability that node n of tree i stands, never above its
    parent's; rows are those that take part in any case, the roots among them.
    """
    nodes = sorted(
        (-chance, tree, node)
        for tree, own in enumerate(chances)
        for node, chance in enumerate(own)
        if node != ROOT
    )
    best, best_rate = 0, len(chances) / cost.cost(rows)
    expected = float(len(chances))
    for count, (chance, _, _) in enumerate(nodes, start=1):
        expected -= chance
        rate = expected / cost.cost(rows + count)
        if rate > best_rate:
            best, best_rate = count, rate
    kept: list[set[int]] = [{ROOT} for _ in chances]
    for _, tree, node in nodes[:best]:
        kept[tree].add(node)
    return kept


def pruned(tree: TokenTree, kept: set[int]) -> TokenTree:
    """Return the tree of the kept nodes, which must contain their ancestors.

    Only draws chosen outright may be dropped for what they are: callers keep all others.
    """
    smaller = TokenTree.rooted_at(tree.tokens[ROOT])
    image = {ROOT: ROOT}
    for node, draws in enumerate(tree.draws):
        for draw in draws:
            if draw.child in kept and node in image:
                image[draw.child] = smaller.add(
                    image[node],
                    tree.tokens[draw.child],
                    draw.law,
                    drafter=draw.drafter,
                    without=draw.without,
                    key=draw.key,
                )
    return smaller
