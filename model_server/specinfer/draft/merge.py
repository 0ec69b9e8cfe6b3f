"""Merge-based tree construction (paper, section 3.1 and Definition 3.2)."""

from collections.abc import Sequence

from specinfer.token_tree import ROOT, TokenTree


def merge(trees: Sequence[TokenTree]) -> TokenTree:
    """Merge trees over the same root: the paths of the result are the union of theirs.

    A path that several trees share is one node; all draws are kept, in the order of the trees,
    each credited to its tree's position.
    """
    merged = TokenTree.rooted_at(trees[0].tokens[ROOT])
    for drafter, tree in enumerate(trees):
        image = {ROOT: ROOT}
        for node, draws in enumerate(tree.draws):
            for draw in draws:
                image[draw.child] = merged.add(
                    image[node],
                    tree.tokens[draw.child],
                    draw.law,
                    drafter=drafter,
                    without=draw.without,
                    key=draw.key,
                )
    return merged
