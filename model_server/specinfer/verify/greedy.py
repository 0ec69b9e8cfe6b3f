"""Greedy verification (paper, Algorithm 2: VerifyGreedy)."""

from collections.abc import Callable, Sequence

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
        return follow_best(tree, best_of_all(rows))
    return _follow(tree, lambda node: int(best_tokens(rows[node][None])))


def best_of_all(rows: Tensor) -> list[int]:
    """Return the likeliest token of each row [N, V]."""
    # numpy's list: behind a pass, its caches cold, torch's operators around it take 60 us.
    on_host = rows.device.type == "cpu"
    best: list[int] = (rows.numpy() if on_host else rows).argmax(1).tolist()
    return best


def follow_best(tree: TokenTree, best: Sequence[int]) -> tuple[list[int], int]:
    """Return the verdict when best[n] is the LLM's token after node n."""
    return _follow(tree, best.__getitem__)


def _follow(tree: TokenTree, best: Callable[[int], int]) -> tuple[list[int], int]:
    accepted: list[int] = []
    node = ROOT
    while True:
        token = best(node)
        child = tree.child(node, token)
        if child is None:
            return accepted, token
        accepted.append(child)
        node = child
