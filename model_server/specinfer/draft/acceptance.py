"""How likely a drafted node is to be accepted, learnt from what was.

A drafter files each draw under a key (how long the agreement was, which rank the token had).
The estimate for a key is the rate at which such nodes were accepted once their parent had been,
over all requests and fading, times how this request fares against what was expected of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree

Key = tuple[int, int]  # drafter, the drafter's own key
Trial = tuple[Key, int]  # what a token was proposed under, the token

PRIOR = 0.3  # until there is evidence
WEIGHT = 4.0  # trials that the prior is worth
MEMORY = 400.0  # trials a key remembers: later ones push earlier ones out
OWN_WEIGHT = 3.0  # expected successes before a request's own record counts half
OWN_FADE = 1 - 1 / 30  # what it keeps at each step: a copy begins, and ends


@dataclass(slots=True)
class _Record:
    """Fading counts: trials and successes, or expected and seen."""

    trials: float = 0.0
    successes: float = 0.0

    def fade(self, kept: float) -> None:
        self.trials *= kept
        self.successes *= kept

    def add(self, trials: float, successes: float) -> None:
        self.trials += trials
        self.successes += successes


@dataclass(slots=True)
class Acceptance:
    """Running estimates for a pool of drafters."""

    _keys: dict[Key, _Record] = field(default_factory=dict)
    _requests: dict[Request, _Record] = field(default_factory=dict)

    def chances(self, request: Request, tree: TokenTree) -> list[float]:
        """Return for each node the estimated probability that it and its whole path stand."""
        factor = self.factor(request)
        chances = [1.0] * len(tree)
        for parent, draws in enumerate(tree.draws):  # a parent precedes its children
            best: dict[int, float] = {}
            for draw in draws:
                rate = self.rate(draw.drafter, draw.key)
                best[draw.child] = max(rate, best.get(draw.child, 0.0))
            for child, rate in best.items():
                chances[child] = chances[parent] * min(1.0, factor * rate)
        return chances

    def observe(
        self,
        request: Request,
        tree: TokenTree,
        tokens: Sequence[int],
        guessed: Iterable[Trial] = (),
    ) -> None:
        """Learn from what was emitted after a tree was proposed, whether it was verified or not.

        Every child of a node on the path of tokens had its trial, if a token followed there; so
        did what was guessed beneath the root, in the tree or not.
        """
        path = [ROOT, *tree.follow(tokens)]
        for parent, token in zip(path, tokens, strict=False):
            trials = [((d.drafter, d.key), tree.tokens[d.child]) for d in tree.draws[parent]]
            if parent == ROOT:
                trials = list(dict.fromkeys([*trials, *guessed]))
            self._learn(request, trials, token)

    def forget(self, request: Request) -> None:
        self._requests.pop(request, None)

    def rate(self, drafter: int, key: int) -> float:
        """Return how often what was proposed under a key stood, over all requests."""
        record = self._keys.get((drafter, key))
        if record is None:
            return PRIOR
        return (record.successes + WEIGHT * PRIOR) / (record.trials + WEIGHT)

    def factor(self, request: Request) -> float:
        """Return how much more often than others' a request's drafts stand."""
        record = self._requests.get(request)
        if record is None:
            return 1.0
        return (record.successes + OWN_WEIGHT) / (record.trials + OWN_WEIGHT)

    def _learn(self, request: Request, trials: Sequence[Trial], emitted: int) -> None:
        """Take in what was proposed at one place, of which one token may have been right."""
        own = self._requests.get(request)
        if own is None:
            own = self._requests[request] = _Record()
        own.fade(OWN_FADE)
        expected: dict[int, float] = {}
        for key, token in trials:
            expected[token] = max(self.rate(*key), expected.get(token, 0.0))
        for token, rate in expected.items():
            own.add(rate, float(token == emitted))
        for key, token in trials:
            record = self._keys.get(key)
            if record is None:
                record = self._keys[key] = _Record()
            if record.trials >= MEMORY:
                record.fade(1 - 1 / MEMORY)
            record.add(1.0, float(token == emitted))
