"""Prompt look-up: guess what followed the last few tokens where they stood before."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from specinfer.draft.guess import Guess
from specinfer.request import Request

SHORTEST = 2  # tokens that have to agree; what follows a single one, n-grams know better
LONGEST = 12  # agreements are told apart up to here
LATEST = 4  # occurrences that are looked at


@dataclass(slots=True)
class _Index:
    """What stands behind each pair of tokens, as places in the text, in order."""

    behind: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    seen: int = SHORTEST

    def update(self, tokens: list[int]) -> None:
        """Take in the tokens that are new since the last call."""
        for at in range(self.seen, len(tokens)):
            self.behind.setdefault((tokens[at - 2], tokens[at - 1]), []).append(at)
        self.seen = max(self.seen, len(tokens))


class PromptLookup:
    """Guesses from a request's own prompt and answer."""

    name = "lookup"
    shared = False

    def __init__(self) -> None:
        self._indices: dict[Request, _Index] = {}

    def guesses(self, request: Request) -> Sequence[Guess]:
        """Return what followed, longest agreement first, then latest; the key is how long."""
        tokens = request.tokens
        index = self._indices.get(request)
        if index is None:
            index = self._indices[request] = _Index()
        index.update(tokens)
        places = index.behind.get((tokens[-2], tokens[-1])) if len(tokens) > 1 else None
        if places is None:
            return ()
        best: dict[int, Guess] = {}
        for at in reversed(places[-LATEST:]):
            token, agreed = tokens[at], _agreement(tokens, at)
            if token not in best or agreed > best[token].key:
                best[token] = Guess(token, agreed, (at,))
        return sorted(best.values(), key=lambda guess: -guess.key)

    def after(self, request: Request, guess: Guess) -> Sequence[Guess]:
        at = guess.place[0] + 1
        if at >= len(request.tokens):
            return ()
        return (Guess(request.tokens[at], min(guess.key + 1, LONGEST), (at,)),)

    def forget(self, request: Request) -> None:
        self._indices.pop(request, None)


def _agreement(tokens: list[int], at: int) -> int:
    """Return how many tokens before `at` are those at the end, knowing that the first two are."""
    agreed, most = SHORTEST, min(LONGEST, at)
    while agreed < most and tokens[at - 1 - agreed] == tokens[-1 - agreed]:
        agreed += 1
    return agreed
