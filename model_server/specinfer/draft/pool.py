"""The pool of drafters (paper, section 3): all propose, and their trees are merged."""

from collections.abc import Sequence

from specinfer.cost_model import CostModel
from specinfer.draft.acceptance import Acceptance
from specinfer.draft.budget import pruned, worth_verifying
from specinfer.draft.drafter import Drafter
from specinfer.draft.forced import within_grammar
from specinfer.draft.merge import merge
from specinfer.draft.patience import Patience
from specinfer.draft.upkeep import Upkeep
from specinfer.request import Request
from specinfer.token_tree import TokenTree


class Pool:
    """Several drafters that act as one, spending no more rows than pay for themselves."""

    def __init__(
        self,
        drafters: Sequence[Drafter],
        cost: CostModel | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        """Without a cost model every proposed node is verified."""
        self.drafters = tuple(drafters)
        self._cost = cost
        self._acceptance = Acceptance()
        self._patience = Patience()
        self._upkeep = upkeep or Upkeep()
        self._proposed: dict[Request, TokenTree] = {}  # whole, to learn from what is emitted
        self.names = tuple(drafter.name for drafter in drafters)

    def propose(self, requests: Sequence[Request], rows: int) -> list[TokenTree]:
        """Return one merged tree a request; its draws are credited by position in `names`.

        rows are those of the pass that are there in any case, the requests' roots among them.
        """
        self._proposed = {}
        self._upkeep.begin()
        asked = [request for request in requests if self._patience.may_ask(request)]
        if asked and self.drafters:
            proposals = [self._upkeep.propose(drafter, asked) for drafter in self.drafters]
            merged = [merge(trees) for trees in zip(*proposals, strict=True)]
            allowed = map(within_grammar, asked, merged)
            self._proposed = dict(zip(asked, allowed, strict=True))
        chosen = [self._proposed.get(r) or TokenTree.rooted_at(r.tokens[-1]) for r in requests]
        if self._cost is not None and self._proposed:
            chosen = self._within_budget(requests, chosen, rows)
            self._upkeep.end(len(asked))
        return chosen

    def observe(self, request: Request, tokens: Sequence[int]) -> None:
        """Learn from the tokens that were emitted after the last proposal."""
        tree = self._proposed.pop(request, None)
        if tree is not None:
            self._acceptance.observe(request, tree, tokens)

    def forget(self, request: Request) -> None:
        self._proposed.pop(request, None)
        self._acceptance.forget(request)
        self._patience.forget(request)
        for drafter in self.drafters:
            drafter.forget(request)

    def _within_budget(
        self, requests: Sequence[Request], trees: list[TokenTree], rows: int
    ) -> list[TokenTree]:
        """Drop the nodes that are not worth their rows; sampled draws are never dropped."""
        assert self._cost is not None
        free = [tree.point_masses_only for tree in trees]
        chances = [
            self._acceptance.chances(request, tree) if may else [1.0]
            for request, tree, may in zip(requests, trees, free, strict=True)
        ]
        fixed = sum(len(tree) - 1 for tree, may in zip(trees, free, strict=True) if not may)
        upkeep = self._upkeep.cost(len(self._proposed))
        kept = worth_verifying(chances, rows + fixed, self._cost, upkeep)
        smaller = [
            pruned(tree, nodes) if may else tree
            for tree, nodes, may in zip(trees, kept, free, strict=True)
        ]
        if self._cost.knows_plain(len(requests)):  # else nothing was weighed
            for request, tree, left in zip(requests, trees, smaller, strict=True):
                self._patience.learn(request, proposed=len(tree) - 1, kept=len(left) - 1)
        return smaller
