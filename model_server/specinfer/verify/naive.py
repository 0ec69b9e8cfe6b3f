"""Naive sampling (paper, section 4.3): let the LLM draw, then look whether it was drafted.

The tokens are those that plain decoding would have drawn from the same random numbers, so the
answer depends neither on the drafters nor on the tree: exact for any of them.  For children
chosen outright (point masses) it accepts as often as multi-step verification does.
"""

from specinfer.choices import Choices
from specinfer.token_tree import ROOT, TokenTree
from specinfer.verify.laws import Weights


def verify_naive(tree: TokenTree, laws: Weights, choices: Choices) -> tuple[list[int], int]:
    """Follow the LLM's own draws down the tree.

    laws are in proportion to the LLM's own, warped, after each node.  Returns the accepted nodes,
    root excluded, and the token that follows them.
    """
    accepted: list[int] = []
    node = ROOT
    while True:
        token = choices.draw(laws[node])
        child = tree.child(node, token)
        if child is None:
            return accepted, token
        accepted.append(child)
        node = child
