"""How much of the drafted trees is worth verifying, for the whole batch at once.

A node earns its place by the chance that it stands; a row costs what the measured cost model
says.  The nodes of all requests compete, likeliest first, and as many are kept as make the most
expected tokens a millisecond.  None at all is a choice like any other.
"""

from collections.abc import Sequence

from specinfer.cost_model import CostModel
from specinfer.token_tree import ROOT, TokenTree

GAIN = 1.02  # what drafts must promise over none; whether they keep it is the ledger's affair


def price(requests: int, rows: int, cost: CostModel) -> float:
    """Return the chance that nodes need on average to pay, however many they are.

    rows are those that take part in any case, a root of each request among them.
    """
    return requests * cost.cheapest(requests, rows) / cost.costs(requests, rows)[0]


def worth_verifying(
    chances: Sequence[Sequence[float]], rows: int, cost: CostModel
) -> tuple[list[set[int]], float]:
    """Return the nodes to keep of each tree, and how much faster than none they promise to be.

    With a node its whole path is kept.  chances[i][n] is the estimated probability that node n of
    tree i stands, never above its parent's.
    """
    nodes = sorted(
        (-chance, tree, node)
        for tree, own in enumerate(chances)
        for node, chance in enumerate(own)
        if node != ROOT
    )
    costs = cost.costs(len(chances), rows)
    plain = expected = float(len(chances))
    best, gain = 0, 1.0
    for count, (minus, _, _) in enumerate(nodes[: len(costs) - 1], 1):
        expected -= minus
        faster = expected / plain * costs[0] / costs[count]
        if faster > gain:
            best, gain = count, faster
    if gain < GAIN or not cost.knows_plain(len(chances)):
        best, gain = 0, 1.0
    kept: list[set[int]] = [{ROOT} for _ in chances]
    for _, tree, node in nodes[:best]:
        kept[tree].add(node)
    return kept, gain


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
