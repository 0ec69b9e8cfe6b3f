"""The exact law of a program that makes random choices: walk every outcome, add up the weights."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from specinfer.choices import Law, SeededChoices

Outcome = TypeVar("Outcome", bound=Hashable)


@dataclass(slots=True)
class Replay:
    """A Choices that follows a script and then takes the first possible option."""

    script: Sequence[int]
    log: list[tuple[int, list[int]]] = field(default_factory=list)  # choice, options
    weight: float = 1.0

    def accepts(self, probability: float) -> bool:
        yes = min(1.0, max(0.0, probability))
        return bool(self._pick([1 - yes, yes]))

    def draw(self, law: Law) -> int:
        weights: list[float] = law.tolist()
        total = sum(weights)
        return self._pick([weight / total for weight in weights])

    def skip(self, count: int) -> None:
        """Numbers that decide nothing have no outcomes."""

    def _pick(self, probabilities: list[float]) -> int:
        options = [i for i, p in enumerate(probabilities) if p > 0]
        step = len(self.log)
        choice = self.script[step] if step < len(self.script) else options[0]
        self.log.append((choice, options))
        self.weight *= probabilities[choice]
        return choice


@dataclass(slots=True)
class Recorded(Replay):
    """Notes the random numbers by which every decision would come out as it did.

    place tells where in an outcome's range of numbers, 0 its lower end and 1 its upper one.
    """

    place: float = 0.5
    numbers: list[float] = field(default_factory=list)

    def accepts(self, probability: float) -> bool:
        yes = Replay.accepts(self, probability)
        share = min(1.0, max(0.0, probability))
        self._note(*((0.0, share) if yes else (share, 1.0)))
        return yes

    def draw(self, law: Law) -> int:
        token = Replay.draw(self, law)
        rising = [0.0, *accumulate(law.tolist())]
        self._note(rising[token] / rising[-1], rising[token + 1] / rising[-1])
        return token

    def skip(self, count: int) -> None:
        self.numbers += [self.place] * count

    def _note(self, low: float, high: float) -> None:
        self.numbers.append(low + self.place * (high - low))


class Given(SeededChoices):
    """Choices by given numbers, and after them by a half."""

    def __init__(self, numbers: Sequence[float]) -> None:
        super().__init__(0)
        self._uniform = lambda: 0.5
        self._ahead = list(numbers)


def exact_law(
    program: Callable[[Replay], Outcome], begin: Callable[[Sequence[int]], Replay] = Replay
) -> dict[Outcome, float]:
    """Return the probability of every outcome of program(choices).

    The program runs once for each path through its choices, so it must make few of them.  Its
    choices are what `begin` makes of the script of a path.
    """
    law: dict[Outcome, float] = defaultdict(float)
    script: list[int] | None = []
    while script is not None:
        run = begin(script)
        law[program(run)] += run.weight
        script = _next_script(run.log)
    return dict(law)


def _next_script(log: list[tuple[int, list[int]]]) -> list[int] | None:
    """Return the choices that lead to the next path in order; None after the last."""
    for step in range(len(log) - 1, -1, -1):
        choice, options = log[step]
        later = [option for option in options if option > choice]
        if later:
            return [taken for taken, _ in log[:step]] + later[:1]
    return None
