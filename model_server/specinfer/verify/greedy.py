"""Greedy verification (paper, Algorithm 2: VerifyGreedy)."""

from collections.abc import Callable

from torch import Tensor

from specinfer.token_tree import ROOT, TokenTree
from specinfer.verify.laws import Laws
from specinfer.warp import best_tokens


def verify_greedy(tree: TokenTree, rows: Laws) -> tuple[list[int], int]:
    """Follow the LLM's best token down the tree while it was drafted.

    rows [N, V] are the LLM's logits (or laws) after each node.  Returns the accepted nodes,
    root excluded, and the token that follows them.
    """
    if isinstance(rows, Tensor):
        return follow(tree, likeliest(rows))
    return follow(tree, lambda node: int(best_tokens(rows[node][None])))


def likeliest(rows: Tensor) -> Callable[[int], int]:
    """Return what tells a row's likeliest token, the first of several, rows [N, V].

    In host memory a row is looked at when it is asked for: a walk sees few of a tree's nodes, and
    parts of a row lie in other cores' caches.  A GPU is waited for once.
    """
    if rows.device.type == "cpu":
        logits = rows.numpy()
        return lambda row: int(logits[row].argmax())
    best: list[int] = rows.argmax(1).tolist()
    return best.__getitem__


def follow(tree: TokenTree, best: Callable[[int], int], start: int = 0) -> tuple[list[int], int]:
    """Return the verdict when best tells the LLM's token after node n of row start + n."""
    accepted: list[int] = []
    node = ROOT
    while True:
        token = best(start + node)
        child = tree.child(node, token)
        if child is None:
            return accepted, token
        accepted.append(child)
        node = child
