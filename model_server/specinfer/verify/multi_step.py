"""Multi-step speculative sampling (paper, Algorithm 2: VerifyStochastic).

Emits tokens with exactly the LLM's law, whatever the SSMs drew (Theorem 4.2), and rejects no
more often than naive sampling does (Theorem 4.3).
"""

from torch import Tensor

from specinfer.choices import Choices
from specinfer.token_tree import ROOT, Draw, TokenTree
from specinfer.verify.laws import Laws


def verify_multi_step(tree: TokenTree, laws: Laws, choices: Choices) -> tuple[list[int], int]:
    """Walk down the tree while one of a node's draws is accepted.

    laws are the LLM's own, warped, after each node.  Returns the accepted nodes, root
    excluded, and the token that follows them.

    Draws are tried in the order they were made.  The paper takes a random order; draws made
    independently are in one already, and draws without replacement are exact only in their own.
    """
    accepted: list[int] = []
    node = ROOT
    while True:
        law = laws[node]
        for draw in tree.draws[node]:
            token = tree.tokens[draw.child]
            if choices.accepts(_ratio(law, draw, token)):
                accepted.append(draw.child)
                node = draw.child
                break
            law = _residual(law, draw, token)
        else:
            return accepted, choices.draw(law)


def _ratio(law: Tensor, draw: Draw, token: int) -> float:
    """Return how much likelier the LLM finds token than the law it was drawn from did."""
    proposal = draw.proposal()
    return float(law[token]) if proposal is None else float(law[token] / proposal[token])


def _residual(law: Tensor, draw: Draw, token: int) -> Tensor:
    """Return what law still owes once the draw has been rejected, [V]."""
    proposal = draw.proposal()
    if proposal is None:
        owed = law.clone()
        owed[token] = 0
    else:
        owed = (law - proposal).clamp_(min=0)
    total = owed.sum()
    # A rejection when the two laws agree up to rounding owes nothing; the law itself is then
    # within one rounding step of the right answer.
    return owed / total if total > 0 else law
