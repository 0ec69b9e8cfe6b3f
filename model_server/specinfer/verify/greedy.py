"""Greedy verification (paper, Algorithm 2: VerifyGreedy)."""

from torch import Tensor

from specinfer.token_tree import ROOT, TokenTree


def verify_greedy(tree: TokenTree, rows: Tensor) -> tuple[list[int], int]:
    """Follow the LLM's best token down the tree while it was drafted.

    rows [N, V] are the LLM's logits (or laws) after each node.  Returns the accepted nodes,
    root excluded, and the token that follows them.
    """
    best: list[int] = rows.argmax(1).tolist()
    accepted: list[int] = []
    node = ROOT
    while (child := tree.child(node, best[node])) is not None:
        accepted.append(child)
        node = child
    return accepted, best[node]
