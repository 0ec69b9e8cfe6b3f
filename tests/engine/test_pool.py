"""The pool's economy under a clock of its own: speculation costs no time where it gains none."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from specinfer.cost_model import CostModel
from specinfer.draft.guess import Guess
from specinfer.draft.ledger import LOOKING, SHARE, Ledger
from specinfer.draft.lookup import PromptLookup
from specinfer.draft.pool import Pool
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.testing.toy import a_request
from specinfer.token_tree import TokenTree

PLAIN, ROW, LOOK = 10.0, 0.8, 0.02  # milliseconds: a plain step, a row more, a look at a request
DRAW = 3.0  # and an SSM's drafts for a batch


@dataclass
class Clock:
    """Time that passes only when told to, in seconds."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Fixed:
    """Says that two tokens follow, at a price in time."""

    clock: Clock
    name: str = "fixed"
    shared: bool = False
    asked: int = 0

    def guesses(self, request: Request) -> Sequence[Guess]:
        self.asked += 1
        self.clock.seconds += LOOK / 1e3
        return (Guess(1, 0, (2,)),)

    def after(self, request: Request, guess: Guess) -> Sequence[Guess]:
        return tuple(Guess(token, 0, ()) for token in guess.place)

    def forget(self, request: Request) -> None:
        """Keeps nothing."""


@dataclass
class Model:
    """An SSM that draws two tokens, for more time than a guesser."""

    clock: Clock
    name: str = "model"
    reads_states: bool = False
    drew: int = 0

    def propose(self, requests: Sequence[Request], *, resting: bool = False) -> list[TokenTree]:
        trees = [TokenTree.rooted_at(request.tokens[-1]) for request in requests]
        asked = [
            tree
            for tree, request in zip(trees, requests, strict=True)
            if request.repeatable or not resting
        ]
        for tree in asked:
            tree.add(tree.add(0, 1, drafter=0), 2, drafter=0)
        self.drew += len(asked)
        self.clock.seconds += (DRAW / 1e3) * bool(asked)
        return trees

    def compare(self, request: Request, others: int) -> None:
        """Plans nothing."""

    def forget(self, request: Request) -> None:
        """Keeps nothing."""


@dataclass
class Bench:
    """A pool whose steps take what rows cost."""

    batch: int = 4
    clock: Clock = field(default_factory=Clock)
    models: int = 0

    def __post_init__(self) -> None:
        self.guesser = Fixed(self.clock)
        self.model = Model(self.clock)
        cost = CostModel([PLAIN, PLAIN + 63 * ROW], (1, 64))
        guessers = [] if self.models else [self.guesser]
        self.pool = Pool([self.model] * self.models, guessers, cost=cost, now=self.clock)
        self.requests = [a_request([0]) for _ in range(self.batch)]
        self.emitted = self.rows = 0

    def step(self, stands: Sequence[bool], speed: float = 1.0) -> int:
        """Run one step in which the requests' drafts stand or fall; return the rows it had."""
        began = self.clock()
        trees = self.pool.propose(self.requests, self.batch)
        rows = sum(map(len, trees))
        self.clock.seconds += (PLAIN + ROW * (rows - 1)) / 1e3 * speed
        emitted = 0
        for request, tree, good in zip(self.requests, trees, stands, strict=True):
            would = [1, 2, 3] if good else [9]
            tokens = would[: len(tree.follow(would)) + 1]
            self.pool.observe(request, tokens)
            emitted += len(tokens)
        self.pool.settle(self.batch, rows, (self.clock() - began) * 1e3, emitted)
        self.emitted += emitted
        return rows

    def plain_ms(self) -> float:
        return PLAIN + ROW * (self.batch - 1)


def test_drafts_that_never_stand_cost_less_than_a_hundredth() -> None:
    for batch in (1, 2, 8, 32):
        bench, steps = Bench(batch), 4000
        for _ in range(steps):
            bench.step([False] * batch)
        assert bench.clock() * 1e3 < 1.01 * steps * bench.plain_ms()


def test_new_accounts_of_a_large_batch_cost_little() -> None:
    """They held as much as one request's: 2 % of the first 300 steps of 32."""
    bench, steps = Bench(32), 150
    for _ in range(steps):
        bench.step([False] * 32)
    assert bench.clock() * 1e3 < 1.01 * steps * bench.plain_ms()


def test_nor_do_promises_that_are_not_kept() -> None:
    """Estimates learnt from what was emitted are right; here they are flattered threefold."""
    bench, steps = Bench(4), 4000
    flattered = bench.pool._acceptance
    real = type(flattered).rate
    type(flattered).rate = lambda self, drafter, key: 0.9  # type: ignore[method-assign]
    rng = random.Random(0)
    try:
        for _ in range(steps):
            bench.step([rng.random() < 0.15 for _ in range(4)])
    finally:
        type(flattered).rate = real  # type: ignore[method-assign]
    per_token = bench.clock() * 1e3 / bench.emitted
    assert per_token < 1.01 * bench.plain_ms() / 4


def test_drafts_that_stand_are_all_made_use_of() -> None:
    bench = Bench(4)
    for _ in range(500):
        bench.step([True] * 4)
    assert bench.emitted / 500 / 4 > 2.5


def test_speculation_comes_back_within_a_hundred_steps_of_paying() -> None:
    bench = Bench(4)
    for _ in range(2000):
        bench.step([False] * 4)
    before = bench.emitted
    for _ in range(100):
        bench.step([True] * 4)
    assert bench.emitted - before > 150 * 4


def test_the_request_that_copies_is_told_apart_from_its_mates() -> None:
    bench, copies = Bench(8), [True] + [False] * 7
    rows = [bench.step(copies) for _ in range(600)]
    late = rows[200:]
    assert sum(late) / len(late) > 9.5, "the one that copies has its nodes"
    assert max(late) <= 10, "and it alone"
    speed = bench.emitted / 600 / (bench.clock() * 1e3 / 600 / bench.plain_ms())
    assert speed > 1.05 * 8


def test_an_ssm_that_is_never_right_costs_less_than_two_hundredths() -> None:
    for batch in (1, 8, 32):
        bench, steps = Bench(batch, models=1), 4000
        for _ in range(steps):
            bench.step([False] * batch)
        assert bench.clock() * 1e3 < 1.02 * steps * bench.plain_ms()
        assert bench.model.drew > 10 * batch, "it is still looked at now and then"


def test_an_ssm_that_begins_to_be_right_drafts_again() -> None:
    bench = Bench(4, models=1)
    for _ in range(1000):
        bench.step([False] * 4)
    for _ in range(300):
        bench.step([True] * 4)
    before = bench.emitted
    for _ in range(100):
        bench.step([True] * 4)
    assert bench.emitted - before > 250 * 4


def test_an_ssm_that_rests_still_drafts_for_answers_that_depend_on_it() -> None:
    bench = Bench(2, models=1)
    for _ in range(400):
        bench.step([False] * 2)
    seeded = a_request([0])
    seeded.params = SamplingParams(temperature=0.8, seed=1, max_new_tokens=50)
    bench.requests[1] = seeded
    assert seeded.repeatable
    before, steps = bench.model.drew, 100
    for _ in range(steps):
        bench.step([False] * 2)
    assert steps <= bench.model.drew - before < 1.2 * steps


def test_sizes_of_batches_have_accounts_of_their_own() -> None:
    ledger = Ledger()
    for _ in range(100):
        ledger.passed(8)
        ledger.speculated(8, 1.3, 2.0, 1.0)
    assert not ledger.may_try(8, 1.3)
    assert ledger.may_try(8, 1.1) and ledger.may_try(2, 1.3)


def test_an_account_opens_again_in_time_and_stays_open_after_a_success() -> None:
    ledger = Ledger()
    while ledger.may_try(8, 1.3):
        ledger.speculated(8, 1.3, 1.2, 1.0)
    steps = 0
    while not ledger.may_try(8, 1.3):
        ledger.passed(8)
        steps += 1
    assert steps <= 0.2 / SHARE
    ledger.speculated(8, 1.3, 1.2, 2.2)
    for _ in range(5):
        ledger.speculated(8, 1.3, 1.2, 1.0)
    assert ledger.may_try(8, 1.3)


def test_what_a_class_earns_pays_for_looking() -> None:
    ledger = Ledger()
    while ledger.may_look(1):
        ledger.passed(1)
        ledger.looked(1, 0.2)
    for _ in range(5):
        ledger.speculated(1, 2.0, 1.1, 3.0)
    assert ledger.may_look_at_all(1)


def test_one_disturbed_step_closes_nothing_for_long() -> None:
    ledger, steps = Ledger(), 0
    while ledger.may_try(1, 2.0):
        ledger.speculated(1, 2.0, 100.0, 1.0)
        steps += 1
    assert steps > 1
    for _ in range(int(0.5 / SHARE) + 1):
        ledger.passed(1)
    assert ledger.may_try(1, 2.0)


def test_where_time_is_short_the_hopeless_are_looked_at_rarely() -> None:
    bench = Bench(8)
    for _ in range(400):
        bench.step([False] * 8)
    before = bench.guesser.asked
    for _ in range(400):
        bench.step([False] * 8)
    assert bench.guesser.asked - before <= 400 * 8 / 8


def test_a_step_that_reads_prompts_goes_without_guesses() -> None:
    bench = Bench(2)
    for _ in range(100):
        bench.step([True] * 2)
    assert len(bench.pool.propose(bench.requests, 2)[0]) == 3
    assert len(bench.pool.propose(bench.requests, 40)[0]) == 1


def test_looking_takes_no_more_than_its_share() -> None:
    ledger, looked, steps = Ledger(), 0.0, 20_000
    for _ in range(steps):
        share = 0.05 if ledger.may_look(1) else 0.0
        looked += share
        ledger.passed(1)
        ledger.looked(1, share)
    assert looked <= LOOKING * steps + 0.6


def test_what_a_seed_answers_does_not_depend_on_what_was_learnt() -> None:
    """With verifiers that look at the drafts, a seeded request's are its own text's alone."""
    text = [1, 2, 3, 4, 5, 9, 1, 2]
    seeded = SamplingParams(temperature=0.8, seed=1, max_new_tokens=50)
    trees = []
    for lessons in (0, 300):
        clock = Clock()
        cost = CostModel([PLAIN, PLAIN + 63 * 50.0], (1, 64))
        pool = Pool((), [PromptLookup(), Fixed(clock, shared=True)], cost=cost, steady=True)
        for _ in range(lessons):
            other = a_request([7, 8, 3, 7, 8])
            pool.propose([other], 1)
            pool.observe(other, [6])
            pool.settle(1, 1, PLAIN, 1)
            pool.forget(other)
        asked = a_request(text)
        asked.params = seeded
        trees.append(pool.propose([asked, a_request(text)], 2)[0])
    assert trees[0].tokens == trees[1].tokens == [2, 3, 4, 5, 9, 1, 2]


def test_a_pool_without_costs_verifies_all_that_is_guessed() -> None:
    pool = Pool((), [Fixed(Clock())])
    assert [len(tree) for tree in pool.propose([a_request([0])] * 2, 2)] == [3, 3]
