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
from collections import Counter
from dataclasses import dataclass, field

SHARE = 0.002  # of the time that each class of promises may lose
LOOKING = 0.005  # and looking for drafts, when nothing comes of it
START, MOST = 1.0, 3.0  # plain steps' worth on one request's new account of a class, and on any
WORST = 0.5  # plain steps that one step can lose: more is a disturbance
SAVED = 0.5  # one request's plain steps' worth of looking, at first and saved up at most
AMPLE = 1.0  # what only earnings lead to, and from where nobody is left out
CLASSES = (1.08, 1.2, 1.5)  # promised speed over plain, from which the next class begins
DRAFTING = 0.005  # of the time that SSMs may lose
CROWD = 8  # requests from which SSMs, who would read all their prompts first, have to wait a while

_LOOK, _SSM = -1, -2  # the accounts for looking, and for SSMs


@dataclass(slots=True)
class _Account:
    """What was left when it was last looked at."""

    balance: float
    step: int


@dataclass(slots=True)
class Ledger:
    """Accounts in plain steps, by log2 of the requests and class of promise.

    What they get at every step they are given when they are looked at, not before.
    """

    _steps: Counter[int] = field(default_factory=Counter)  # by log2 of the requests
    _accounts: dict[tuple[int, int], _Account] = field(default_factory=dict)

    def passed(self, requests: int) -> None:
        """Book a step, whatever was in it."""
        self._steps[_size(requests)] += 1

    def may_look(self, requests: int) -> bool:
        """Tell whether there is time to look for drafts."""
        return self._account(requests, _LOOK).balance >= 0

    def may_look_at_all(self, requests: int) -> bool:
        """Tell whether there is time to look at requests that promise little."""
        return self._account(requests, _LOOK).balance >= AMPLE

    def may_try(self, requests: int, promise: float) -> bool:
        """Tell whether to believe that a step will be so many times as fast as a plain one."""
        return self._account(requests, _class(promise)).balance >= 0

    def may_draft(self, requests: int) -> bool:
        """Tell whether SSMs have time to draft."""
        return self._account(requests, _SSM).balance >= 0

    def looked(self, requests: int, steps: float) -> None:
        """Book that looking took so much of a plain step, and led to nothing."""
        self._enter(requests, _LOOK, -steps)

    def speculated(self, requests: int, promise: float, steps: float, emitted: float) -> None:
        """Book a step as long as so many plain ones, of so many tokens a request."""
        surplus = self._enter(requests, _class(promise), emitted - steps)
        self._enter(requests, _LOOK, surplus)

    def drafted(self, requests: int, steps: float, emitted: float) -> None:
        """Book a step in which SSMs drafted, as long as so many plain ones with all they took.

        They begin by reading every request's prompt, so a larger batch can lose more at once.
        """
        self._enter(requests, _SSM, emitted - steps, WORST * requests)

    def _account(self, requests: int, kind: int) -> _Account:
        """Return an account that has been given its share of the steps since it was last seen."""
        size = _size(requests)
        step, account = self._steps[size], self._accounts.get((size, kind))
        if account is None:
            account = self._accounts[size, kind] = _Account(_start(requests, kind), step)
        share, most = _allowance(requests, kind)
        if account.balance < most:
            account.balance = min(most, account.balance + share * (step - account.step))
        account.step = step
        return account

    def _enter(self, requests: int, kind: int, amount: float, worst: float = WORST) -> float:
        """Book an amount; return what is more than an account may hold."""
        account = self._account(requests, kind)
        balance = account.balance + max(-worst, amount)
        account.balance = min(MOST, balance)
        return max(0.0, balance - MOST)


def _start(requests: int, kind: int) -> float:
    """Return what a new account holds.

    It is to see through the noise of steps, which falls with the root of the requests.
    """
    if kind == _SSM:
        return START - requests / CROWD
    return (SAVED if kind == _LOOK else START) / math.sqrt(requests)


def _allowance(requests: int, kind: int) -> tuple[float, float]:
    """Return what an account gets at every step, and up to what balance."""
    if kind == _LOOK:
        return LOOKING, _start(requests, kind)
    return DRAFTING if kind == _SSM else SHARE, MOST


def _size(requests: int) -> int:
    return round(math.log2(requests))


def _class(promise: float) -> int:
    return sum(promise >= bound for bound in CLASSES)
