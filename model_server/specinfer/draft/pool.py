"""The pool of drafters (paper, section 3): all propose, and their trees are merged.

SSMs draw trees of their own; guessers add to the merged tree what is worth a row.  How much of it
is verified is weighed for the whole batch, and tried only where the ledger has time for it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specinfer.cost_model import CostModel
from specinfer.draft.acceptance import PRIOR, Acceptance, Trial
from specinfer.draft.beside import found_without
from specinfer.draft.budget import price, pruned, worth_verifying
from specinfer.draft.drafter import Drafter
from specinfer.draft.forced import within_grammar
from specinfer.draft.guess import Guesser, Rate, grow
from specinfer.draft.ledger import Ledger
from specinfer.draft.merge import merge
from specinfer.draft.patience import Patience
from specinfer.request import Request
from specinfer.token_tree import TokenTree

_CERTAIN = (1.0,)  # the root
IN_COMPANY = 0.8  # of what nodes need on average: one that others have paid the way for


@dataclass(slots=True)
class _Step:
    """What the step's drafting has taken, in milliseconds, and what it promises."""

    drafting: float = 0.0
    models: float = 0.0  # of it in SSMs, whose passes their planner weighs
    drawn: bool = False  # whether an SSM has drafted by its own choice
    promise: float | None = None  # how much faster than a plain step; None: nothing is tried


@dataclass(frozen=True, slots=True)
class _Proposed:
    """What was drafted for a request, whole, and all that guessers would have begun with."""

    tree: TokenTree
    guessed: Sequence[Trial] = ()
    chances: Sequence[float] | None = None  # that each node stands, where they are known already


class Pool:
    """Several drafters that act as one, spending no more rows than pay for themselves."""

    def __init__(
        self,
        drafters: Sequence[Drafter] = (),
        guessers: Sequence[Guesser] = (),
        *,
        cost: CostModel | None = None,
        nodes: int = 12,
        depth: int = 8,
        steady: bool = False,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Each guesser may add so many nodes down to a depth; without costs all are verified.

        steady: a seeded answer depends on what is drafted for it, which then follows from its own
        text alone.
        """
        self.drafters = tuple(drafters)
        self.guessers = tuple(guessers)
        self._all: tuple[Drafter | Guesser, ...] = (*self.drafters, *self.guessers)
        self.names = tuple(one.name for one in self._all)
        self.reads_states = any(drafter.reads_states for drafter in self.drafters)
        self._cost = cost
        self._nodes, self._depth = nodes, depth
        self._steady = steady
        self._now = now
        self._ledger = Ledger()
        self._patience = Patience()
        self._acceptance = Acceptance()
        self._proposed: dict[Request, _Proposed] = {}  # to learn from what is emitted
        self._step = _Step()

    def propose(self, requests: Sequence[Request], rows: int) -> list[TokenTree]:
        """Return one merged tree a request; its draws are credited by position in `names`.

        rows are those of the pass that are there in any case, the requests' roots among them.
        """
        began = self._now()
        self._step, self._proposed = _Step(), {}
        trees = self._drawn(requests)
        self._step.models = (self._now() - began) * 1e3 if self.drafters else 0.0
        self._guess(requests, trees, rows)
        if self._cost is not None and any(len(tree) > 1 for tree in trees):
            trees = self._within_budget(requests, trees, rows, self._cost)
        self._step.drafting = (self._now() - began) * 1e3
        return trees

    def observe(self, request: Request, tokens: Sequence[int]) -> None:
        """Learn from the tokens that were emitted after the last proposal."""
        last = self._proposed.pop(request, None)
        if last is not None:
            self._acceptance.observe(request, last.tree, tokens, last.guessed)
        for who, drafter in enumerate(self.drafters):
            later = range(who, len(self.drafters))  # so that one of two equals is worth asking
            found = found_without(later, last.tree, tokens) if last is not None else 0
            drafter.compare(request, found)

    def settle(self, requests: int, rows: int, milliseconds: float, emitted: int) -> None:
        """Learn from a whole step without prompts: its rows, how long it took, what it emitted."""
        if self._cost is None:
            return
        step, plain = self._step, self._cost.cost(requests, requests)
        self._ledger.passed(requests)
        if step.drawn:
            self._ledger.drafted(requests, milliseconds / plain, emitted / requests)
        own = milliseconds - step.models
        if rows == requests:
            looked = step.drafting - step.models
            self._ledger.looked(requests, looked / plain)
            own -= looked
        elif step.promise is not None:
            steps = own / plain  # SSMs have planners, which a shared account would only mislead
            self._ledger.speculated(requests, step.promise, steps, emitted / requests)
        self._cost.observe(requests, rows, own)

    def forget(self, request: Request) -> None:
        self._proposed.pop(request, None)
        self._acceptance.forget(request)
        self._patience.forget(request)
        for one in self._all:
            one.forget(request)

    def _drawn(self, requests: Sequence[Request]) -> list[TokenTree]:
        """Return the SSMs' trees, merged; bare roots without one."""
        resting = self._cost is not None and not self._ledger.may_draft(len(requests) or 1)
        if not self.drafters or (resting and not any(request.repeatable for request in requests)):
            return [TokenTree.rooted_at(request.tokens[-1]) for request in requests]
        proposals = [drafter.propose(requests, resting=resting) for drafter in self.drafters]
        if all(len(tree) == 1 for trees in proposals for tree in trees):
            return proposals[0]
        merged = [merge(trees) for trees in zip(*proposals, strict=True)]
        trees = [within_grammar(*pair) for pair in zip(requests, merged, strict=True)]
        for request, tree in zip(requests, trees, strict=True):
            if len(tree) > 1:
                self._proposed[request] = _Proposed(tree)
        self._step.drawn = bool(self._proposed) and not resting
        return trees

    def _guess(self, requests: Sequence[Request], trees: list[TokenTree], rows: int) -> None:
        """Add to the trees what the guessers have to say, where there is time to ask them."""
        floor = self._floor(len(requests), rows) if self.guessers and requests else None
        choosy = self._cost is not None and not self._ledger.may_look_at_all(len(requests) or 1)
        for request, tree in zip(requests, trees, strict=True):
            if self._steady and request.repeatable:
                self._grow(request, tree, _always, 0.0, alone=True)
            elif floor is not None and (not choosy or self._patience.may_look(request)):
                self._grow(request, tree, self._rate(request), floor)
                self._patience.learn(request, found=len(tree) > 1)

    def _floor(self, batch: int, rows: int) -> float | None:
        """Return the chance below which no node is built; None where nobody is to be looked at.

        A step that reads prompts goes without: its extra rows cost a head each, and measured gains
        are those of other steps.
        """
        if self._cost is None:
            return 0.0
        if rows > batch or not self._cost.knows_plain(batch) or not self._ledger.may_look(batch):
            return None
        return IN_COMPANY * price(batch, rows, self._cost)

    def _grow(
        self, request: Request, tree: TokenTree, rate: Rate, floor: float, *, alone: bool = False
    ) -> None:
        starts = [
            (who, guess)
            for who, guesser in enumerate(self.guessers)
            if not (alone and guesser.shared)
            for guess in guesser.guesses(request)
        ]
        if not starts:
            return
        credit, drawn = len(self.drafters), len(tree) > 1
        chances = None
        if any(rate(who, guess.key) > floor for who, guess in starts):
            grown = grow(
                tree,
                request,
                starts,
                self.guessers,
                rate,
                nodes=self._nodes,
                depth=self._depth,
                floor=floor,
                credit=credit,
            )
            chances = None if drawn else [1.0, *grown]
        guessed = [((credit + who, guess.key), guess.token) for who, guess in starts]
        self._proposed[request] = _Proposed(tree, guessed, chances)

    def _rate(self, request: Request) -> Rate:
        """Return how likely a guess for a request is to stand, its parent having stood."""
        acceptance, credit = self._acceptance, len(self.drafters)
        factor = acceptance.factor(request)
        return lambda who, key: min(1.0, factor * acceptance.rate(credit + who, key))

    def _within_budget(
        self, requests: Sequence[Request], trees: list[TokenTree], rows: int, cost: CostModel
    ) -> list[TokenTree]:
        """Drop the nodes that are not worth their rows, all of them where the ledger says so.

        Sampled draws are never dropped, nor what a seed's answer depends on.
        """
        chances = [
            self._chances(request, tree) for request, tree in zip(requests, trees, strict=True)
        ]
        fixed = sum(
            len(tree) - 1 for tree, own in zip(trees, chances, strict=True) if len(own) == 1
        )
        kept, gain = worth_verifying(chances, rows + fixed, cost)
        if gain > 1 and self._ledger.may_try(len(requests), gain):
            self._step.promise = gain
        else:
            kept = [{0}] * len(trees)
        return [
            pruned(tree, nodes) if len(own) > 1 else tree
            for tree, nodes, own in zip(trees, kept, chances, strict=True)
        ]

    def _chances(self, request: Request, tree: TokenTree) -> Sequence[float]:
        """Return how likely each node is to stand; the root alone where none may be dropped."""
        if len(tree) == 1 or (self._steady and request.repeatable):
            return _CERTAIN
        known = self._proposed[request].chances
        if known is None:
            known = self._acceptance.chances(request, tree) if tree.point_masses_only else _CERTAIN
        return known


def _always(who: int, key: int) -> float:
    """Stand in for what was learnt from others: the order in which guesses are made decides."""
    return PRIOR
