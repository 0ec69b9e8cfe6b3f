"""The books of speculation: what may be tried is what has paid, so that none can cost much.

Gains and losses are measured, not modelled: a step's whole time, everything beside the pass
included, against the tokens it emitted and the time a plain step takes.  Each size of batch has
an account for every class of promises, one for looking at all and one for SSMs.  An account gets
a small share of the time and what its steps gain, pays what they lose, and nothing is tried on an
empty one: what is lost in the long run is that share, whatever the estimates say, while a class
that pays stays open, and one that begins to pay opens with its first success.  What a class has
earned beyond what it may hold pays for looking.
"""

import math
from dataclasses import dataclass, field

SHARE = 0.002  # of the time that each class of promises may lose
LOOKING = 0.005  # and looking for drafts, when nothing comes of it
START, MOST = 1.0, 3.0  # plain steps' worth on a new account of a class, and on any
WORST = 0.5  # plain steps that one step can lose: more is a disturbance
SAVED = 0.5  # plain steps' worth of looking, on a new account and saved up at most
AMPLE = 1.0  # what only earnings lead to, and from where nobody is left out
CLASSES = (1.08, 1.2, 1.5)  # promised speed over plain, from which the next class begins
DRAFTING = 0.005  # of the time that SSMs may lose
CROWD = 8  # requests from which SSMs, who would read all their prompts first, have to wait a while

_LOOK, _SSM = -1, -2  # the accounts for looking, and for SSMs


@dataclass(slots=True)
class Ledger:
    """Accounts in plain steps, by log2 of the requests and class of promise."""

    _accounts: dict[tuple[int, int], float] = field(default_factory=dict)

    def may_look(self, requests: int) -> bool:
        """Tell whether there is time to look for drafts."""
        return self._balance(requests, _LOOK) >= 0

    def may_look_at_all(self, requests: int) -> bool:
        """Tell whether there is time to look at requests that promise little."""
        return self._balance(requests, _LOOK) >= AMPLE

    def may_try(self, requests: int, promise: float) -> bool:
        """Tell whether to believe that a step will be so many times as fast as a plain one."""
        return self._balance(requests, _class(promise)) >= 0

    def plain(self, requests: int, looking: float) -> None:
        """Book a step without drafts, of which a share of a plain step went into looking."""
        self._allow(requests)
        self._enter(requests, _LOOK, -looking)

    def speculated(self, requests: int, promise: float, steps: float, emitted: float) -> None:
        """Book a step as long as so many plain ones, of so many tokens a request."""
        self._allow(requests)
        surplus = self._enter(requests, _class(promise), emitted - steps)
        self._enter(requests, _LOOK, surplus)

    def may_draft(self, requests: int) -> bool:
        """Tell whether SSMs have time to draft."""
        return self._balance(requests, _SSM) >= 0

    def drafted(self, requests: int, steps: float, emitted: float) -> None:
        """Book a step in which SSMs drafted, as long as so many plain ones with all they took.

        They begin by reading every request's prompt, so a larger batch can lose more at once.
        """
        self._enter(requests, _SSM, DRAFTING + emitted - steps, WORST * requests)

    def undrafted(self, requests: int) -> None:
        """Book a step in which no SSM drafted."""
        self._enter(requests, _SSM, DRAFTING)

    def _allow(self, requests: int) -> None:
        if self._balance(requests, _LOOK) < SAVED:
            self._enter(requests, _LOOK, LOOKING)
        for kind in range(len(CLASSES) + 1):
            self._enter(requests, kind, SHARE)

    def _balance(self, requests: int, kind: int) -> float:
        balance = self._accounts.get((_size(requests), kind))
        return _start(requests, kind) if balance is None else balance

    def _enter(self, requests: int, kind: int, amount: float, worst: float = WORST) -> float:
        """Book an amount; return what is more than an account may hold."""
        balance = self._balance(requests, kind) + max(-worst, amount)
        self._accounts[_size(requests), kind] = min(MOST, balance)
        return max(0.0, balance - MOST)


def _start(requests: int, kind: int) -> float:
    """Return what a new account holds."""
    if kind == _LOOK:
        return SAVED
    return START - requests / CROWD if kind == _SSM else START


def _size(requests: int) -> int:
    return round(math.log2(requests))


def _class(promise: float) -> int:
    return sum(promise >= bound for bound in CLASSES)
