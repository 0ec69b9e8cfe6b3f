"""What a drafter is: a model that proposes a token tree for each request of a batch."""

from collections.abc import Sequence
from typing import Protocol

from specinfer.request import Request
from specinfer.token_tree import TokenTree


class Drafter(Protocol):
    """A source of speculated tokens."""

    @property
    def name(self) -> str:
        """Name under which its figures are reported."""

    @property
    def reads_states(self) -> bool:
        """Whether it begins at requests' `state`, which the LLM's passes then have to hand out."""

    def propose(self, requests: Sequence[Request], *, resting: bool = False) -> list[TokenTree]:
        """Return a tree for each request, rooted at its last token; a bare root is no proposal.

        resting: only for those whose answers depend on being drafted for (`repeatable`).
        No path may be longer than the request's `room` minus one.  Whether a node is drawn may
        depend on what was drawn before it, never on its own value: verification would be biased
        (a point mass, being certain, is free of this).
        """

    def compare(self, request: Request, others: int) -> None:
        """Hear how many of the tokens emitted last were drafted by those asked before it.

        Guessers, who are asked in any case, count among them.
        """

    def forget(self, request: Request) -> None:
        """Drop all that is kept for a request that has ended."""
