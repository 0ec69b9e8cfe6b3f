"""Greedy verification (paper, Algorithm 2: VerifyGreedy)."""

from torch import Tensor

from specinfer.token_tree import ROOT, TokenTree
from specinfer.verify.laws import Laws


def verify_greedy(tree: TokenTree, rows: Laws) -> tuple[list[int], int]:
    """Follow the LLM's best token down the tree while it was drafted.

    rows [N, V] are the LLM's logits (or laws) after each node.  Returns the accepted nodes,
    root excluded, and the token that follows them.
    """
    # One transfer from the device for all nodes, where all rows are there.
    all_best = rows.argmax(1).tolist() if isinstance(rows, Tensor) else None
    accepted: list[int] = []
    node = ROOT
    while True:
        best = int(rows[node].argmax()) if all_best is None else all_best[node]
        child = tree.child(node, best)
        if child is None:
            return accepted, best
        accepted.append(child)
        node = child
