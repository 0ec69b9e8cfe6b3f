"""How likely a drafted node is to be accepted, learnt from what was.

A drafter files each draw under a key (how long the agreement was, which rank the token had).
The estimate for a key is the rate at which such nodes were accepted once their parent had been,
over all requests and fading, times how this request fares against what was expected of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from specinfer.request import Request
from specinfer.token_tree import ROOT, Draw, TokenTree

Key = tuple[int, int]  # drafter, the drafter's own key

PRIOR = 0.3  # until there is evidence
WEIGHT = 4.0  # trials that the prior is worth
MEMORY = 400.0  # trials a key remembers: later ones push earlier ones out
OWN_WEIGHT = 8.0  # expected successes before a request's own record counts half


@dataclass(slots=True)
class _Record:
    """Fading counts: trials and successes, or expected and seen."""

    trials: float = 0.0
    successes: float = 0.0

    def add(self, trials: float, successes: float) -> None:
        fade = 1.0 if self.trials < MEMORY else 1 - trials / MEMORY
        self.trials = self.trials * fade + trials
        self.successes = self.successes * fade + successes


@dataclass(slots=True)
class Acceptance:
    """Running estimates for a pool of drafters."""

    _keys: dict[Key, _Record] = field(default_factory=dict)
    _requests: dict[Request, _Record] = field(default_factory=dict)

    def chances(self, request: Request, tree: TokenTree) -> list[float]:
        """Return for each node the estimated probability that it and its whole path stand."""
        factor = self._factor(request)
        chances = [1.0] * len(tree)
        for parent, draws in enumerate(tree.draws):  # a parent precedes its children
            for child, rate in self._rates(draws).items():
                chances[child] = chances[parent] * min(1.0, factor * rate)
        return chances

    def observe(self, request: Request, tree: TokenTree, tokens: Sequence[int]) -> None:
        """Learn from what was emitted after a tree was proposed, whether it was verified or not.

        Every child of a node on the path of tokens had its trial, if a token followed there.
        """
        path = [ROOT, *tree.follow(tokens)]
        stood = set(path)
        record = self._requests.setdefault(request, _Record())
        for parent in path[: len(tokens)]:
            draws = tree.draws[parent]
            for child, rate in self._rates(draws).items():
                record.add(rate, float(child in stood))
            for draw in draws:
                key = (draw.drafter, draw.key)
                self._keys.setdefault(key, _Record()).add(1.0, float(draw.child in stood))

    def forget(self, request: Request) -> None:
        self._requests.pop(request, None)

    def _rates(self, draws: Sequence[Draw]) -> dict[int, float]:
        """Return for each child the best of the rates under which it was drawn."""
        rates: dict[int, float] = {}
        for draw in draws:
            rate = self._key_rate((draw.drafter, draw.key))
            rates[draw.child] = max(rate, rates.get(draw.child, 0.0))
        return rates

    def _key_rate(self, key: Key) -> float:
        record = self._keys.get(key)
        if record is None:
            return PRIOR
        return (record.successes + WEIGHT * PRIOR) / (record.trials + WEIGHT)

    def _factor(self, request: Request) -> float:
        record = self._requests.get(request)
        if record is None:
            return 1.0
        return (record.successes + OWN_WEIGHT) / (record.trials + OWN_WEIGHT)
