"""How often a node's k-th child is the one accepted: measured by `specinfer profile`, or learnt."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specinfer.draft.shape import Rates
from specinfer.errors import ConfigError
from specinfer.token_tree import ROOT, TokenTree

FIRST_GUESS: Rates = (0.5, 0.15, 0.08, 0.05, 0.03, 0.02)  # the paper's Table 1, made duller
GUESSED, MEASURED = 8.0, 400.0  # trials that a guess, and a profile, are worth
MEMORY = 400.0  # trials remembered: later ones push earlier ones out


@dataclass(slots=True)
class Ranks:
    """Fading counts of trials and successes by rank, for one way of choosing tokens."""

    trials: list[float]
    successes: list[float]

    @classmethod
    def starting(cls, rates: Rates, weight: float) -> "Ranks":
        return cls([weight] * len(rates), [rate * weight for rate in rates])

    @property
    def rates(self) -> Rates:
        return tuple(s / t for s, t in zip(self.successes, self.trials, strict=True))

    def observe(self, tree: TokenTree, tokens: Sequence[int]) -> None:
        """Learn from the tokens that were emitted after a tree had been drafted.

        Its draws had their trial wherever the path of tokens came by and went on.
        """
        path = [ROOT, *tree.follow(tokens)]
        for parent, child in zip(path[: len(tokens)], [*path[1:], None], strict=False):
            draws = tree.draws[parent][: len(self.trials)]
            won = next((rank for rank, draw in enumerate(draws) if draw.child == child), None)
            for rank in range(len(draws)):
                self._add(rank, float(rank == won))

    def _add(self, rank: int, success: float) -> None:
        fade = 1 - max(0.0, self.trials[rank] + 1 - MEMORY) / MEMORY
        self.trials[rank] = self.trials[rank] * fade + 1
        self.successes[rank] = self.successes[rank] * fade + success


@dataclass(frozen=True, slots=True)
class Profile:
    """Rates for greedy and for sampling requests, and what they are worth as evidence."""

    greedy: Rates = FIRST_GUESS
    sampled: Rates = FIRST_GUESS
    weight: float = field(default=GUESSED, compare=False)

    @classmethod
    def read(cls, path: Path) -> "Profile":
        """Read what `specinfer profile` wrote; raises ConfigError."""
        try:
            document = json.loads(path.read_text())
            greedy, sampled = (_checked(document[name]) for name in ("greedy", "sampled"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"tree_profile: {path} is no profile of an SSM: {error}") from None
        return cls(greedy, sampled, MEASURED)


def _checked(rates: Sequence[float]) -> Rates:
    if not rates or min(rates) < 0 or sum(rates) > 1 + 1e-9:
        raise ValueError(f"rates must be at least 0 and add up to at most 1, got {rates}")
    return tuple(map(float, rates))
