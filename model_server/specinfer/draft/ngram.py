"""An n-gram model learnt from the traffic: guess what usually follows."""

from collections import OrderedDict
from collections.abc import Sequence

from specinfer.draft.guess import Guess
from specinfer.request import Request

LONGEST = 3  # tokens of context; shorter ones are the fall-back
FOLLOWERS = 4  # tokens remembered for a context
SHARES = 4  # steps in which a follower's relative frequency is told apart


class NGram:
    """Guesses from what prompts and answers of all requests have had in common.

    It remembers at most `contexts` contexts, dropping the one unused for longest.  What it has
    learnt changes which tokens are proposed, never which are emitted.
    """

    name = "ngram"
    shared = True

    def __init__(self, *, contexts: int = 200_000) -> None:
        self._contexts = contexts
        self._counts: OrderedDict[tuple[int, ...], dict[int, int]] = OrderedDict()
        self._read: dict[Request, int] = {}

    def guesses(self, request: Request) -> Sequence[Guess]:
        self._learn(request)
        return self._following(tuple(request.tokens[-LONGEST:]))

    def after(self, request: Request, guess: Guess) -> Sequence[Guess]:
        return self._following((*guess.place[1 - LONGEST :], guess.token))

    def forget(self, request: Request) -> None:
        if request in self._read:
            self._learn(request)
            del self._read[request]

    def _learn(self, request: Request) -> None:
        tokens = request.tokens
        for at in range(self._read.get(request, 1), len(tokens)):
            for start in range(max(0, at - LONGEST), at):
                self._count(tuple(tokens[start:at]), tokens[at])
        self._read[request] = len(tokens)

    def _count(self, context: tuple[int, ...], token: int) -> None:
        followers = self._counts.get(context)
        if followers is None:
            self._counts[context] = {token: 1}
            if len(self._counts) > self._contexts:
                self._counts.popitem(last=False)
            return
        self._counts.move_to_end(context)
        if token not in followers and len(followers) == FOLLOWERS:
            del followers[min(followers, key=followers.__getitem__)]
        followers[token] = followers.get(token, 0) + 1

    def _following(self, context: tuple[int, ...]) -> Sequence[Guess]:
        """Return what followed the longest end of a context that is remembered."""
        for length in range(len(context), 0, -1):
            followers = self._counts.get(context[-length:])
            if followers is not None:
                total = sum(followers.values()) + 1
                return [
                    Guess(token, length * SHARES + count * SHARES // total, context)
                    for token, count in followers.items()
                ]
        return ()
