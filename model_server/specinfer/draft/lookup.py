"""Prompt look-up: propose what followed the last few tokens where they stood before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree

LONGEST = 4  # tokens that have to agree; longer agreements are tried first


@dataclass(slots=True)
class _Index:
    """Where each run of up to LONGEST tokens ended, in the order of appearance."""

    ends: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    seen: int = 0

    def update(self, tokens: list[int]) -> None:
        """Take in the tokens that are new since the last call."""
        for end in range(self.seen + 1, len(tokens) + 1):
            for length in range(1, min(LONGEST, end) + 1):
                self.ends.setdefault(tuple(tokens[end - length : end]), []).append(end)
        self.seen = len(tokens)

    def matches(self, tokens: list[int]) -> Iterator[tuple[int, int]]:
        """Yield where the last tokens stood before, longest, then latest first, and how many."""
        found: set[int] = set()
        for length in range(min(LONGEST, len(tokens)), 0, -1):
            for end in reversed(self.ends.get(tuple(tokens[-length:]), ())):
                if end < len(tokens) and end not in found:
                    found.add(end)
                    yield end, length


class PromptLookup:
    """Drafts from a request's own prompt and answer; needs no model."""

    name = "lookup"
    runs_model = False

    def __init__(self, *, depth: int, nodes: int) -> None:
        self._depth = depth
        self._nodes = nodes
        self._indices: dict[Request, _Index] = {}

    def propose(self, requests: Sequence[Request]) -> list[TokenTree]:
        return [self._propose(request) for request in requests]

    def forget(self, request: Request) -> None:
        self._indices.pop(request, None)

    def _propose(self, request: Request) -> TokenTree:
        tokens = request.tokens
        index = self._indices.setdefault(request, _Index())
        index.update(tokens)
        tree = TokenTree.rooted_at(tokens[-1])
        depth = min(self._depth, request.room - 1)
        for end, agreed in index.matches(tokens):
            if len(tree) > self._nodes:
                break
            _graft(tree, tokens[end : end + depth], self._nodes, agreed)
        return tree


def _graft(tree: TokenTree, continuation: list[int], nodes: int, agreed: int) -> None:
    """Add a path beneath the root as far as the budget of nodes goes.

    A node's chance is known by how many tokens agree once the path to it has stood.
    """
    node = ROOT
    for depth, token in enumerate(continuation):
        known = tree.child(node, token)
        if known is None:
            if len(tree) > nodes:
                return
            known = tree.add(node, token, key=agreed + depth)
        node = known
