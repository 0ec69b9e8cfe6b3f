"""Which walk verifies a sampled request's tree, and how its draws have to be made."""

from typing import Literal

from specinfer.config import Verifier
from specinfer.token_tree import TokenTree

Rule = Literal["naive", "multi_step", "traversal"]


def rule_of(tree: TokenTree, verifier: Verifier) -> Rule:
    """Return the walk that a verifier takes for a tree.

    `auto` is naive for trees of point masses, where the answer to a seed does not depend on the
    drafts, and traversal elsewhere.
    """
    if verifier == "naive" or (verifier == "auto" and tree.point_masses_only):
        return "naive"
    return "traversal" if verifier in ("auto", "traversal") else "multi_step"


def draws_with_replacement(verifier: Verifier) -> bool:
    """Tell how an SSM's children are to be drawn: the paper's way only for the paper's walk."""
    return verifier == "multi_step"
