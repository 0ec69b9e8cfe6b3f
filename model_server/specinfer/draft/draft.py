"""One request's draft by one SSM: how far its tree has grown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from specinfer.draft.shape import Shape
from specinfer.kv_cache import CachedSequence
from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree


@dataclass(slots=True, eq=False)
class Draft:
    """The tree an SSM last proposed for a request, or is growing for it, level by level."""

    request: Request
    tree: TokenTree
    length: int = 0  # of the request when the tree was begun
    frontier: Sequence[int] = ()  # nodes whose children are drawn next
    shape: Shape | None = None  # None: it sat out, and its tree is an earlier step's
    places: dict[int, int] = field(default_factory=dict)  # of the tree's nodes in the shape
    level: int = 0
    found: int = 0  # by the other drafters, in the step before the tree was begun

    def begin(self, shape: Shape, found: int = 0) -> None:
        """Start a new tree."""
        self.tree = TokenTree.rooted_at(self.request.tokens[-1])
        self.shape, self.places, self.level = shape, {ROOT: ROOT}, 0
        self.found, self.length = found, len(self.request.tokens)
        self.frontier = self._with_children([ROOT])

    def width(self, node: int) -> int:
        assert self.shape is not None
        return self.shape.children[self.places[node]]

    def advance(self) -> None:
        """Make those of the frontier's children that are to have children the next frontier.

        Of draws that share a node the first one's place in the shape counts.
        """
        assert self.shape is not None
        self.level += 1
        for node in self.frontier:
            first = self.shape.firsts[self.places[node]]
            for rank, draw in enumerate(self.tree.draws[node]):
                self.places.setdefault(draw.child, first + rank)
        self.frontier = self._with_children(range(max(self.frontier) + 1, len(self.tree)))

    def _with_children(self, nodes: Iterable[int]) -> list[int]:
        """Return which of the nodes get children, as far as the answer may still go on."""
        return [node for node in nodes if self.level < self.request.room - 1 and self.width(node)]


@dataclass(slots=True, eq=False)
class CachedDraft(Draft):
    """A draft of an SSM with a cache."""

    sequence: CachedSequence = field(kw_only=True)
    computed: int = 1  # nodes of the tree whose keys and values are in the cache, root included
