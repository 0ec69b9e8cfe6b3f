"""Drafts that need no model: guessers say what may follow, the likeliest paths are grown first.

Nothing is built that is not wanted: the chance of a guess is known before there is a node for it,
and a tree ends where no guess is worth the price of a row.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree


class Guess(NamedTuple):
    """A token that may come next."""

    token: int
    key: int  # what the guesser's record of acceptance is kept by
    place: tuple[int, ...]  # the guesser's own: where it would go on


class Guesser(Protocol):
    """A source of guesses, chosen outright: point masses, free to depend on their own values."""

    @property
    def name(self) -> str:
        """Name under which its figures are reported."""

    @property
    def shared(self) -> bool:
        """Whether what it says of one request depends on others."""

    def guesses(self, request: Request) -> Sequence[Guess]:
        """Return what may follow a request's last token, in a few microseconds."""

    def after(self, request: Request, guess: Guess) -> Sequence[Guess]:
        """Return what may follow a guess, should it stand."""

    def forget(self, request: Request) -> None:
        """Drop all that is kept for a request that has ended."""


Rate = Callable[
    [int, int], float
]  # guesser, key -> how likely a guess stands where its parent does
Starts = Sequence[tuple[int, Guess]]  # a guesser's number, what it says may follow the root
_Growth = tuple[float, int, int, int, int, Guess]  # -chance, age, guesser, parent, depth, guess


def grow(
    tree: TokenTree,
    request: Request,
    starts: Starts,
    guessers: Sequence[Guesser],
    rate: Rate,
    *,
    nodes: int,
    depth: int,
    floor: float = 0.0,
    credit: int = 0,
) -> list[float]:
    """Add to a tree what is likelier than floor, at most so many nodes a guesser.

    Draws are credited to the guesser's number plus `credit`.  What is grown never depends on
    what the tree has already, which may have been sampled.  Returns the chances of its new nodes.
    """
    heap: list[_Growth] = []
    chances: list[float] = []
    left, known = [nodes] * len(guessers), len(tree)
    deepest = min(depth, request.room - 1)

    def push(chance: float, who: int, parent: int, level: int, guess: Guess) -> None:
        chance *= rate(who, guess.key)
        if chance > floor and level <= deepest:
            heapq.heappush(heap, (-chance, len(heap), who, parent, level, guess))

    for who, guess in starts:
        push(1.0, who, ROOT, 1, guess)
    while heap:
        chance, _, who, parent, level, guess = heapq.heappop(heap)
        if not left[who] or not _allowed(request, tree, parent, guess.token):
            continue
        left[who] -= 1
        node = tree.add(parent, guess.token, drafter=credit + who, key=guess.key)
        if node == known + len(chances):
            chances.append(-chance)
        for following in guessers[who].after(request, guess):
            push(-chance, who, node, level + 1, following)
    return chances


def _allowed(request: Request, tree: TokenTree, parent: int, token: int) -> bool:
    """Tell whether the grammar, if any, admits a token there; else the LLM's law has no mass."""
    constraint = request.constraint
    return constraint is None or constraint.admits([*tree.tokens_to(parent), token])
