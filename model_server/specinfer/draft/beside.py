"""What an SSM adds to what the other drafters find anyway, which is all that it is worth."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from specinfer.token_tree import ROOT, TokenTree

PRIOR = 4.0  # steps, and tokens, that the belief of being alone is worth
MEMORY = 128.0  # steps remembered: later ones push earlier ones out


@dataclass(slots=True)
class Beside:
    """Fading sums over the steps that the SSM drafted for."""

    steps: float = 0.0
    own: float = 0.0  # tokens that it had right
    more: float = 0.0  # of them, those beyond what the others had right
    others: float = 0.0  # tokens that the others had right

    def add(self, own: int, stood: int, others: int) -> None:
        """Count a step in which the SSM had so many tokens right, and the others so many.

        stood is how many of its own were verified: a pool may drop what is not worth a row.
        """
        fade = 1 - max(0.0, self.steps + 1 - MEMORY) / MEMORY
        self.steps = self.steps * fade + 1
        self.own = self.own * fade + own
        self.more = self.more * fade + max(0, stood - others)
        self.others = self.others * fade + others

    @property
    def emitted(self) -> float:
        """Tokens a step without the SSM, the LLM's own included."""
        return 1 + self.others / (self.steps + PRIOR)

    def expected(self, alone: float) -> float:
        """Return the tokens a step with the SSM, of what is expected of its tree alone."""
        return self.emitted + (alone - 1) * (self.more + PRIOR) / (self.own + PRIOR)


def found_without(drafters: Container[int], tree: TokenTree, tokens: Sequence[int]) -> int:
    """Return how many of the tokens a tree had right by the draws of others than these drafters."""
    parent, found = ROOT, 0
    for node in tree.follow(tokens):
        draws = tree.draws[parent]
        if not any(draw.child == node and draw.drafter not in drafters for draw in draws):
            break
        parent, found = node, found + 1
    return found
