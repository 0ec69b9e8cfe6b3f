"""How deep an SSM is to draft: as deep as the next level is likely to pay for itself.

Each level costs a pass of the SSM and more rows of the LLM; it gains a token if the level
before it stood and one of its own nodes does too.  The rates are learnt, the costs measured.
"""

from collections.abc import Sequence

from specinfer.config import TreeShape
from specinfer.cost_model import CostModel
from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree

FIRST_GUESS = 0.6  # rate at which a level stands, until there is evidence
MEMORY = 0.95  # what a level's rate keeps of itself at a new trial
LOOK_ANYWAY = 16  # steps without a draft before one is made again, to notice better times


class DepthPlanner:
    """Chooses one depth for a batch, from 0 (do not draft) to the whole shape."""

    def __init__(self, shape: TreeShape, ssm: CostModel, llm: CostModel) -> None:
        self._shape = shape
        self._ssm = ssm
        self._llm = llm
        self._rates = [FIRST_GUESS] * len(shape.widths)
        self._idle = 0

    def depth(self, requests: Sequence[Request]) -> int:
        """Return the depth that makes the most expected tokens a millisecond."""
        best, best_rate = 0, self._rate(0, len(requests))
        for depth in range(1, len(self._shape.widths) + 1):
            rate = self._rate(depth, len(requests))
            if rate > best_rate:
                best, best_rate = depth, rate
        self._idle = 0 if best else self._idle + 1
        if self._idle > LOOK_ANYWAY:
            self._idle = 0
            return 1
        return best

    def observe(self, tree: TokenTree, accepted: Sequence[int]) -> None:
        """Learn from a verified tree of this SSM: which levels stood."""
        stood = {ROOT, *accepted}
        depths = tree.depths()
        reached = max(depths[node] for node in stood)
        for level in range(min(reached + 1, max(depths), len(self._rates))):
            success = float(level < reached)
            self._rates[level] = MEMORY * self._rates[level] + (1 - MEMORY) * success

    def _rate(self, depth: int, requests: int) -> float:
        tokens, stands, nodes, level = 1.0, 1.0, 0, 1
        milliseconds = 0.0
        for width, rate in zip(self._shape.widths[:depth], self._rates, strict=False):
            milliseconds += self._ssm.cost(requests, requests * max(1, nodes))
            level *= width
            nodes += level
            stands *= rate
            tokens += stands
        return tokens / (milliseconds + self._llm.cost(requests, requests * (1 + nodes)))
