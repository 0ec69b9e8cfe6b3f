"""Traversal verification (arXiv 2505.12398): from the leaves up, a whole path at a time.

A path is kept with the probability that all of it deserves, so a doubtful node is rescued by
what the LLM thinks of its descendants.  Exact, and accepts more than the paper's top-down walk.
"""

from torch import Tensor

from specinfer.choices import Choices
from specinfer.token_tree import ROOT, TokenTree
from specinfer.verify.laws import Laws

Verdict = tuple[list[int], int]


def verify_traversal(tree: TokenTree, laws: Laws, choices: Choices) -> Verdict:
    """Return the accepted nodes, root excluded, and the token that follows them.

    laws are the LLM's own, warped, after each node.
    """
    verdict = _visit(tree, laws, choices, ROOT, 1.0, set())
    assert verdict is not None, "the root is certain"
    return verdict


def _visit(
    tree: TokenTree, laws: Laws, choices: Choices, node: int, weight: float, seen: set[int]
) -> Verdict | None:
    """Try the paths through node, which stands with the given weight; None when all fail.

    A token drawn twice beneath a node is one node: its second draw comes as a leaf.
    """
    draws = () if node in seen else tree.draws[node]
    seen.add(node)
    if not draws:  # the law of a leaf that falls is never made
        return ([], choices.draw(laws[node])) if choices.accepts(weight) else None
    law = laws[node]
    for draw in draws:
        token, proposal = tree.tokens[draw.child], draw.proposal()
        chance = float(law[token] if proposal is None else law[token] / proposal[token])
        found = _visit(tree, laws, choices, draw.child, min(1.0, weight * chance), seen)
        if found is not None:
            return [draw.child, *found[0]], found[1]
        law, weight = _owed(law, weight, proposal, token)
    return ([], choices.draw(law)) if choices.accepts(weight) else None


def _owed(law: Tensor, weight: float, proposal: Tensor | None, token: int) -> tuple[Tensor, float]:
    """Return the law and the weight that remain once a child has been rejected."""
    rest = law * weight
    if proposal is None:
        rest[token] = 0
    else:
        rest.sub_(proposal).clamp_(min=0)
    total = float(rest.sum())
    if total <= 0:  # nothing owed but rounding: the child was certain, or nearly
        return law, weight if weight == 1.0 else 0.0
    return rest.div_(total), total / (total + (1 - weight))  # exactly 1 where weight is
