"""Token tree verification (paper, section 4.3): which of the speculated tokens stand."""

from specinfer.choices import Choices
from specinfer.config import Verifier
from specinfer.sampling import SamplingParams
from specinfer.token_tree import TokenTree
from specinfer.verify.greedy import follow, likeliest, verify_greedy
from specinfer.verify.laws import Laws, WarpedRows, weights
from specinfer.verify.multi_step import verify_multi_step
from specinfer.verify.naive import verify_naive
from specinfer.verify.traversal import verify_traversal


def verify(
    tree: TokenTree, rows: Laws, params: SamplingParams, choices: Choices, verifier: Verifier
) -> tuple[list[int], int]:
    """Return the accepted nodes, root excluded, and the token that follows them.

    rows [N, V] are the LLM's logits after each node, float32; a tensor, or anything that gives a
    node's row when asked.  Temperature 0 is always greedy.
    `auto` is naive for trees of point masses, where the answer to a seed does not depend on the
    drafts, and traversal elsewhere.  How children are drawn goes with the verifier: see
    draws_with_replacement.
    """
    if params.greedy:
        return verify_greedy(tree, rows)
    if verifier == "naive" or (verifier == "auto" and tree.point_masses_only):
        return verify_naive(tree, weights(rows, params), choices)
    laws = WarpedRows(rows, params)
    if verifier in ("auto", "traversal"):
        return verify_traversal(tree, laws, choices)
    return verify_multi_step(tree, laws, choices)


def draws_with_replacement(verifier: Verifier) -> bool:
    """Tell how an SSM's children are to be drawn: the paper's way only for the paper's walk."""
    return verifier == "multi_step"


__all__ = [
    "Laws",
    "WarpedRows",
    "draws_with_replacement",
    "follow",
    "likeliest",
    "verify",
    "verify_greedy",
    "verify_multi_step",
    "verify_naive",
    "verify_traversal",
]
