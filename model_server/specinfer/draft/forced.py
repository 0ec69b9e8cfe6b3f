"""Drafts from a request's grammar: the tokens that have to follow, as far as there is no choice."""

from collections.abc import Sequence

from specinfer.draft.budget import pruned
from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree


class Forced:
    """Proposes what the grammar dictates: the name of a property, the rest of a choice."""

    name = "grammar"
    runs_model = False

    def __init__(self, *, nodes: int) -> None:
        self._nodes = nodes

    def propose(self, requests: Sequence[Request]) -> list[TokenTree]:
        return [_forced(request, self._nodes) for request in requests]

    def forget(self, request: Request) -> None:
        """Nothing is kept."""


def _forced(request: Request, nodes: int) -> TokenTree:
    tree, node = TokenTree.rooted_at(request.tokens[-1]), ROOT
    if request.constraint is not None:
        for token in request.constraint.forced()[: max(0, min(nodes, request.room - 1))]:
            node = tree.add(node, token)
    return tree


def within_grammar(request: Request, tree: TokenTree) -> TokenTree:
    """Drop the nodes that the request's grammar rules out, where they were chosen outright.

    The LLM's masked law has no mass on them, so verification would have rejected every one.
    Sampled draws are kept whatever they are: they were masked before they were drawn.
    """
    if request.constraint is None:
        return tree
    kept = {ROOT}
    for node in range(1, len(tree)):
        parent = tree.parents[node]
        sampled = any(draw.law is not None for draw in tree.draws[parent] if draw.child == node)
        if parent in kept and (sampled or request.constraint.admits(tree.tokens_to(node))):
            kept.add(node)
    return tree if len(kept) == len(tree) else pruned(tree, kept)
