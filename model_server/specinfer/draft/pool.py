"""The pool of drafters (paper, section 3): all propose, and their trees are merged."""

from collections.abc import Sequence

from specinfer.draft.drafter import Drafter
from specinfer.draft.merge import merge
from specinfer.request import Request
from specinfer.token_tree import TokenTree


class Pool:
    """Several drafters that act as one."""

    name = "pool"

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        self.names = tuple(drafter.name for drafter in drafters)

    def propose(self, requests: Sequence[Request]) -> list[TokenTree]:
        """Return one merged tree a request; its draws are credited by position in `names`."""
        proposals = [drafter.propose(requests) for drafter in self._drafters]
        if not proposals:
            return [TokenTree.rooted_at(request.tokens[-1]) for request in requests]
        return [merge(trees) for trees in zip(*proposals, strict=True)]

    def forget(self, request: Request) -> None:
        for drafter in self._drafters:
            drafter.forget(request)
