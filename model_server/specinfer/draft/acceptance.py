"""How likely a drafted node is to be accepted, learnt from what was.

A drafter files each draw under a key (how long the agreement was, which rank the token had).
The estimate for a key is the rate at which such nodes were accepted once their parent had been,
over all requests and fading, times how this request fares against what was expected of it.
"""

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
        chances = [1.0]
        for node in range(1, len(tree)):
            own = min(1.0, factor * self._rate(tree, node))
            chances.append(chances[tree.parents[node]] * own)
        return chances

    def observe(self, request: Request, tree: TokenTree, accepted: list[int]) -> None:
        """Learn from a verified tree: every child of an accepted node had its trial."""
        record = self._requests.setdefault(request, _Record())
        stood = {ROOT, *accepted}
        for parent in stood:
            for child in {draw.child for draw in tree.draws[parent]}:
                success = float(child in stood)
                record.add(self._rate(tree, child), success)
                for draw in _draws_of(tree, child):
                    key = (draw.drafter, draw.key)
                    self._keys.setdefault(key, _Record()).add(1.0, success)

    def forget(self, request: Request) -> None:
        self._requests.pop(request, None)

    def _rate(self, tree: TokenTree, node: int) -> float:
        """Return the best of the rates under which the node was drawn."""
        return max(self._key_rate((draw.drafter, draw.key)) for draw in _draws_of(tree, node))

    def _key_rate(self, key: Key) -> float:
        record = self._keys.get(key) or _Record()
        return (record.successes + WEIGHT * PRIOR) / (record.trials + WEIGHT)

    def _factor(self, request: Request) -> float:
        record = self._requests.get(request) or _Record()
        return (record.successes + OWN_WEIGHT) / (record.trials + OWN_WEIGHT)


def _draws_of(tree: TokenTree, node: int) -> list[Draw]:
    return [draw for draw in tree.draws[tree.parents[node]] if draw.child == node]
