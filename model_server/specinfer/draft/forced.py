"""Drafts from a request's grammar: the tokens that have to follow, as far as there is no choice."""

from collections.abc import Sequence

from specinfer.draft.budget import pruned
from specinfer.draft.guess import Guess
from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree


class Forced:
    """Guesses what the grammar dictates: the name of a property, the rest of a choice."""

    name = "grammar"
    shared = False

    def guesses(self, request: Request) -> Sequence[Guess]:
        return _first(request.constraint.forced()) if request.constraint is not None else ()

    def after(self, request: Request, guess: Guess) -> Sequence[Guess]:
        return _first(guess.place)

    def forget(self, request: Request) -> None:
        """Nothing is kept."""


def _first(tokens: Sequence[int]) -> Sequence[Guess]:
    return (Guess(tokens[0], 0, tuple(tokens[1:])),) if tokens else ()


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
