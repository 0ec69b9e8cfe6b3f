"""An n-gram model learnt from the traffic: propose what usually follows, best paths first."""

import heapq
from collections import OrderedDict
from collections.abc import Sequence

from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree

LONGEST = 3  # tokens of context; shorter ones are the fall-back
FOLLOWERS = 4  # tokens remembered for a context
SHARES = 4  # steps in which a follower's relative frequency is told apart

Growth = tuple[float, int, int, list[int], int]  # -share, parent, depth left, path, key


class NGram:
    """Drafts from what prompts and answers of all requests have had in common.

    It remembers at most `contexts` contexts, dropping the one unused for longest.  What it has
    learnt changes which tokens are proposed, never which are emitted.
    """

    name = "ngram"
    runs_model = False

    def __init__(
        self, *, depth: int, nodes: int, contexts: int = 200_000, seeded: bool = True
    ) -> None:
        """Propose to seeded requests only where their answers do not depend on what is drafted."""
        self._depth = depth
        self._nodes = nodes
        self._contexts = contexts
        self._seeded = seeded
        self._counts: OrderedDict[tuple[int, ...], dict[int, int]] = OrderedDict()
        self._read: dict[Request, int] = {}

    def propose(self, requests: Sequence[Request]) -> list[TokenTree]:
        trees = [self._propose(request) for request in requests]
        for request in requests:
            self._learn(request)
        return trees

    def forget(self, request: Request) -> None:
        self._learn(request)
        self._read.pop(request, None)

    def _learn(self, request: Request) -> None:
        tokens = request.tokens
        for at in range(self._read.get(request, 1), len(tokens)):
            for length in range(1, min(LONGEST, at) + 1):
                self._count(tuple(tokens[at - length : at]), tokens[at])
        self._read[request] = len(tokens)

    def _count(self, context: tuple[int, ...], token: int) -> None:
        followers = self._counts.setdefault(context, {})
        self._counts.move_to_end(context)
        if token not in followers and len(followers) == FOLLOWERS:
            del followers[min(followers, key=followers.__getitem__)]
        followers[token] = followers.get(token, 0) + 1
        if len(self._counts) > self._contexts:
            self._counts.popitem(last=False)

    def _propose(self, request: Request) -> TokenTree:
        """Grow the tree where the product of relative frequencies is largest."""
        tree = TokenTree.rooted_at(request.tokens[-1])
        depth = min(self._depth, request.room - 1)
        recent = request.tokens[-LONGEST:]
        heap: list[Growth] = []
        if request.repeatable and not self._seeded:
            return tree
        self._push_followers(heap, 1.0, ROOT, recent, depth)
        while heap and len(tree) <= self._nodes:
            share, parent, left, context, key = heapq.heappop(heap)
            node = tree.add(parent, context[-1], key=key)
            self._push_followers(heap, -share, node, context, left - 1)
        return tree

    def _push_followers(
        self,
        heap: list[Growth],
        share: float,
        node: int,
        context: list[int],
        left: int,
    ) -> None:
        length, followers = self._followers(context) if left > 0 else (0, {})
        total = sum(followers.values())
        for token, count in followers.items():
            path = [*context, token][-LONGEST:]
            part = count / (total + 1)
            key = length * SHARES + int(part * SHARES)
            heapq.heappush(heap, (-share * part, node, left, path, key))

    def _followers(self, context: list[int]) -> tuple[int, dict[int, int]]:
        """Return the longest remembered end of context, as its length, and what followed it."""
        for length in range(min(LONGEST, len(context)), 0, -1):
            counts = self._counts.get(tuple(context[-length:]))
            if counts:
                return length, counts
        return 0, {}
