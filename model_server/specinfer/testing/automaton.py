"""A grammar small enough to reason about: a finite automaton over token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from specinfer.grammar.constraint import Mask

ENDED = "ended"  # where the end token leads


@dataclass(slots=True)
class Automaton:
    """A specinfer.grammar.constraint.Matcher whose every state is a letter."""

    vocab: int
    arrows: Mapping[str, Mapping[int, str]]  # state -> token -> state
    final: str = ""  # the states in which the answer may end
    end: int | None = None  # the token that ends it
    problem: str = ""
    _states: list[str] = field(default_factory=lambda: ["A"])

    @property
    def state(self) -> str:
        return self._states[-1]

    @property
    def over(self) -> bool:
        return self.state == ENDED or (self.state in self.final and not self.arrows[self.state])

    def take(self, tokens: Sequence[int]) -> int:
        for taken, token in enumerate(tokens):
            following = self._following()
            if token not in following:
                return taken
            self._states.append(following[token])
        return len(tokens)

    def give_back(self, count: int) -> None:
        del self._states[len(self._states) - count :]

    def mask(self) -> Mask:
        mask = np.zeros(self.vocab, np.bool_)
        mask[list(self._following())] = True
        return mask

    def forced(self) -> list[int]:
        tokens: list[int] = []
        while len(following := self._following()) == 1 and self.state != ENDED:
            tokens += following
            self.take(tokens[-1:])
        self.give_back(len(tokens))
        return tokens

    def _following(self) -> dict[int, str]:
        if self.state == ENDED:
            return {}
        following = dict(self.arrows[self.state])
        if self.state in self.final and self.end is not None:
            following[self.end] = ENDED
        return following
