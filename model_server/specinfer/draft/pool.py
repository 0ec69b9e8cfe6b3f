"""The pool of drafters (paper, section 3): all propose, and their trees are merged."""

from collections.abc import Sequence

from specinfer.cost_model import CostModel
from specinfer.draft.acceptance import Acceptance
from specinfer.draft.budget import pruned, worth_verifying
from specinfer.draft.drafter import Drafter
from specinfer.draft.forced import within_grammar
from specinfer.draft.merge import merge
from specinfer.request import Request
from specinfer.token_tree import TokenTree

LOOK_ANYWAY = 12  # steps without a drafted row before one is tried again, to notice better times


class Pool:
    """Several drafters that act as one, spending no more rows than pay for themselves."""

    def __init__(self, drafters: Sequence[Drafter], cost: CostModel | None = None) -> None:
        """Without a cost model every proposed node is verified."""
        self._drafters = tuple(drafters)
        self._cost = cost
        self._acceptance = Acceptance()
        self._idle = 0
        self.names = tuple(drafter.name for drafter in drafters)

    def propose(self, requests: Sequence[Request], rows: int) -> list[TokenTree]:
        """Return one merged tree a request; its draws are credited by position in `names`.

        rows are those of the pass that are there in any case, the requests' roots among them.
        """
        proposals = [drafter.propose(requests) for drafter in self._drafters]
        if not proposals:
            return [TokenTree.rooted_at(request.tokens[-1]) for request in requests]
        merged = [merge(trees) for trees in zip(*proposals, strict=True)]
        trees = [within_grammar(*pair) for pair in zip(requests, merged, strict=True)]
        return trees if self._cost is None else self._within_budget(requests, trees, rows)

    def observe(self, request: Request, tree: TokenTree, accepted: list[int]) -> None:
        """Learn from a verified tree."""
        self._acceptance.observe(request, tree, accepted)
        for drafter in self._drafters:
            drafter.observe(request, tree, accepted)

    def forget(self, request: Request) -> None:
        self._acceptance.forget(request)
        for drafter in self._drafters:
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
        kept = worth_verifying(chances, rows + fixed, self._cost)
        self._look_anyway(chances, kept)
        return [
            pruned(tree, nodes) if may else tree
            for tree, nodes, may in zip(trees, kept, free, strict=True)
        ]

    def _look_anyway(self, chances: list[list[float]], kept: list[set[int]]) -> None:
        """After many steps without a draft verify the likeliest tree, or neither chances nor costs
        that have become better would ever be noticed."""
        self._idle = 0 if any(len(nodes) > 1 for nodes in kept) else self._idle + 1
        if self._idle <= LOOK_ANYWAY:
            return
        self._idle = 0
        firsts = [(own[1], tree) for tree, own in enumerate(chances) if len(own) > 1]
        if firsts:
            tree = max(firsts)[1]
            kept[tree] = set(range(len(chances[tree])))
