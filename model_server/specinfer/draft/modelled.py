"""What the drafters with an SSM share: shapes that are planned, and learning what became of them.

Shapes are chosen by planner.py before a token is drawn.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from specinfer.draft.draft import Draft
from specinfer.draft.growth import Growth
from specinfer.draft.planner import Planner
from specinfer.draft.shape import Shape
from specinfer.request import Request
from specinfer.token_tree import TokenTree

Own = TypeVar("Own", bound=Draft)


class Modelled(ABC, Generic[Own]):
    """One SSM that proposes trees of the shapes that its planner chooses."""

    reads_states: bool

    def __init__(self, name: str, planner: Planner, growth: Growth) -> None:
        self.name = name
        self.planner = planner
        self._growth = growth
        self._drafts: dict[Request, Own] = {}
        self._found: dict[Request, int] = {}  # by the other drafters in the last step

    def propose(self, requests: Sequence[Request], *, resting: bool = False) -> list[TokenTree]:
        self._learn(requests)
        shapes = self.planner.shapes(requests, self._behind, self._last_found, resting=resting)
        drafts = [self._resume(*pair) for pair in zip(requests, shapes, strict=True)]
        self._grow([draft for draft in drafts if draft is not None])
        return [
            draft.tree if draft else TokenTree.rooted_at(request.tokens[-1])
            for draft, request in zip(drafts, requests, strict=True)
        ]

    def compare(self, request: Request, others: int) -> None:
        """Hear how many of the tokens emitted last the other drafters had found.

        What was drawn has then been verified.
        """
        self._found[request] = others
        draft = self._drafts.get(request)
        if draft is not None and not request.params.greedy:
            draft.tree.forget_laws()

    def forget(self, request: Request) -> None:
        self._found.pop(request, None)
        self._drafts.pop(request, None)

    def _sit_out(self, draft: Own | None) -> None:
        """Have nothing learnt from a draft that has not been made anew."""
        if draft is not None:
            draft.shape = None

    def _last_found(self, request: Request) -> int:
        return self._found.get(request, 0)

    def _learn(self, requests: Sequence[Request]) -> None:
        """Compare what was drafted last with what has become of it."""
        for draft in (self._drafts[request] for request in requests if request in self._drafts):
            if draft.shape is not None:
                request = draft.request
                self.planner.observe(
                    draft.tree,
                    request.tokens[draft.length :],
                    greedy=request.params.greedy,
                    others=self._last_found(request),
                    found=draft.found > 0,
                )

    @abstractmethod
    def _behind(self, request: Request) -> int:
        """Return how many rows the SSM would have to run for a tree's first level."""

    @abstractmethod
    def _resume(self, request: Request, shape: Shape | None) -> Own | None:
        """Begin a tree; None where the SSM must sit out."""

    @abstractmethod
    def _grow(self, drafts: list[Own]) -> None:
        """Grow the trees that have begun."""
