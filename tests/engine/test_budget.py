"""What is worth verifying: measured costs against learnt chances."""

import random
from collections.abc import Sequence

import pytest

from specinfer.cost_model import CostModel, FlatCost
from specinfer.draft.acceptance import PRIOR, Acceptance
from specinfer.draft.budget import GAIN, pruned, worth_verifying
from specinfer.draft.pool import Pool
from specinfer.draft.upkeep import Upkeep
from specinfer.request import Request
from specinfer.testing.toy import a_request
from specinfer.token_tree import ROOT, TokenTree


def known(cost: CostModel, passes: int = 9) -> CostModel:
    """Show a model plain passes of one and two requests that cost what it expects."""
    for requests in (1, 2):
        for _ in range(passes):
            cost.observe(requests, requests, cost.cost(requests, requests))
    return cost


FLAT = known(CostModel([10.0, 10.0, 10.0], (1, 8, 64)))
STEEP = CostModel([10.0, 80.0, 640.0], (1, 8, 64))


class Fixed:
    """A drafter that always proposes the same two tokens."""

    name = "fixed"
    runs_model = False

    def __init__(self) -> None:
        self.asked = 0

    def propose(self, requests: Sequence[Request]) -> list[TokenTree]:
        self.asked += len(requests)
        return [chain(2) for _ in requests]

    def forget(self, request: Request) -> None:
        """Keeps nothing."""


def chain(length: int) -> TokenTree:
    tree, node = TokenTree.rooted_at(0), ROOT
    for token in range(1, length + 1):
        node = tree.add(node, token)
    return tree


def test_free_rows_are_all_taken() -> None:
    assert worth_verifying([[1.0, 0.5, 0.25, 0.01]], 1, FLAT) == [{0, 1, 2, 3}]


def test_rows_that_cost_a_step_each_are_not() -> None:
    assert worth_verifying([[1.0, 0.9, 0.8]], 1, known(STEEP)) == [{0}]


def test_nodes_of_all_requests_compete() -> None:
    cost = known(CostModel([10.0, 12.0, 60.0], (1, 4, 8)))
    kept = worth_verifying([[1.0, 0.9, 0.8], [1.0, 0.05, 0.01]], 2, cost)
    assert kept == [{0, 1, 2}, {0}]


def test_the_choice_is_the_best_of_all_sizes() -> None:
    """Against brute force over every number of nodes, likeliest first."""
    rng = random.Random(0)
    for _ in range(100):
        cost = known(CostModel(sorted(rng.uniform(1, 30) for _ in range(4)), (1, 4, 16, 64)))
        chances = [[1.0, *sorted((rng.random() for _ in range(6)), reverse=True)] for _ in "ab"]
        flat = sorted((c for own in chances for c in own[1:]), reverse=True)
        rates = [(2 + sum(flat[:n])) / cost.cost(2, 2 + n) for n in range(len(flat) + 1)]
        best = max(rates) if max(rates) >= GAIN * rates[0] else rates[0]
        kept = worth_verifying(chances, 2, cost)
        assert rates[sum(map(len, kept)) - 2] == pytest.approx(best)


def test_pruning_keeps_paths_and_their_draws() -> None:
    tree = chain(3)
    tree.add(ROOT, 9, key=4, drafter=1)
    smaller = pruned(tree, {0, 1, 4})
    assert smaller.tokens == [0, 1, 9]
    assert [(draw.drafter, draw.key) for draw in smaller.draws[ROOT]] == [(0, 0), (1, 4)]


def test_chances_follow_what_was_accepted() -> None:
    learnt, request = Acceptance(), a_request([1])
    tree = chain(2)
    assert learnt.chances(request, tree) == pytest.approx([1.0, PRIOR, PRIOR**2])
    for _ in range(200):
        learnt.observe(request, tree, [1, 2, 3])
    assert learnt.chances(request, tree)[2] > 0.9
    for _ in range(800):
        learnt.observe(request, tree, [9])
    assert learnt.chances(request, tree)[1] < 0.1


def test_a_request_that_does_worse_than_the_rest_is_told_apart() -> None:
    learnt, good, bad = Acceptance(), a_request([1]), a_request([2])
    for _ in range(50):
        learnt.observe(good, chain(1), [1, 2])
        learnt.observe(bad, chain(1), [9])
    assert learnt.chances(good, chain(1))[1] > 2 * learnt.chances(bad, chain(1))[1]
    learnt.forget(bad)
    assert learnt.chances(bad, chain(1))[1] == pytest.approx(
        learnt.chances(a_request([3]), chain(1))[1]
    )


def test_nodes_whose_parent_fell_teach_nothing() -> None:
    learnt, request = Acceptance(), a_request([1])
    learnt.observe(request, chain(3), [9])
    assert sum(record.trials for record in learnt._keys.values()) == 1


def test_a_node_behind_the_last_token_has_had_no_trial() -> None:
    learnt, request = Acceptance(), a_request([1])
    learnt.observe(request, chain(3), [1, 2])
    assert learnt._keys[0, 0].trials == learnt._keys[0, 0].successes == 2


def test_a_pool_learns_from_drafts_that_it_did_not_verify() -> None:
    """A node fed back as failed because it was cut away kept its estimate low for ever."""
    pool, request = Pool([Fixed()], known(STEEP)), a_request([0])
    for _ in range(50):
        (tree,) = pool.propose([request], 1)
        pool.observe(request, [1, 2])
    assert len(tree) == 1, "rows are too dear"
    assert pool._acceptance.chances(request, chain(2))[2] > 0.8


def test_whose_drafts_are_never_kept_is_asked_less() -> None:
    drafter = Fixed()
    pool, request = Pool([drafter], known(STEEP)), a_request([0])
    for _ in range(40):
        pool.propose([request], 1)
        pool.observe(request, [9])
    assert drafter.asked == 11
    pool.forget(request)
    pool.propose([request], 1)
    assert drafter.asked == 12


def test_a_tree_pays_for_its_drafting() -> None:
    """Drafts that gained a tenth of a batch's tokens and took a tenth of its time were kept."""
    chances = [[1.0, 0.3], [1.0, 0.3]]
    assert worth_verifying(chances, 2, FLAT) == [{0, 1}, {0, 1}]
    assert worth_verifying(chances, 2, FLAT, upkeep=1.0) == [{0, 1}, {0, 1}]
    assert worth_verifying(chances, 2, FLAT, upkeep=3.0) == [{0}, {0}]


def test_drafters_too_slow_for_what_they_gain_are_asked_less() -> None:
    clock = iter(range(10_000))  # every look at it is a second later
    drafter = Fixed()
    pool, request = Pool([drafter], FLAT, Upkeep(lambda: next(clock))), a_request([0])
    trees = []
    for _ in range(40):
        trees += pool.propose([request], 1)
        pool.observe(request, [1, 2, 3])
    assert {len(tree) for tree in trees[1:]} == {1}
    assert drafter.asked < 15


def test_passes_of_a_model_are_no_upkeep() -> None:
    """A planner has weighed them already."""
    times = iter([0.0, 1.0, 9.0, 10.0])
    upkeep, drafter = Upkeep(lambda: next(times)), Fixed()
    drafter.runs_model = True
    upkeep.begin()
    upkeep.propose(drafter, [a_request([0])])
    upkeep.end(1)
    assert upkeep.cost(3) == pytest.approx(3 * 2e3)


def test_one_disturbance_moves_upkeep_little() -> None:
    times = iter([0.0, 0.001] * 50 + [0.0, 5.0])
    upkeep = Upkeep(lambda: next(times))
    for _ in range(51):
        upkeep.begin()
        upkeep.end(1)
    assert upkeep.cost(1) < 1.2


def test_costs_are_lines_between_points_and_never_fall() -> None:
    cost = CostModel([10.0, 8.0, 30.0], (1, 4, 8))
    assert [cost.cost(1, n) for n in (1, 2, 4, 6, 8, 12)] == pytest.approx([10, 10, 10, 20, 30, 50])


def test_costs_follow_the_machine() -> None:
    cost = CostModel([10.0, 20.0], (1, 8))
    for _ in range(100):
        cost.observe(1, 8, 40.0)
        cost.observe(1, 1, 20.0)
    assert cost.cost(1, 8) == pytest.approx(40, rel=0.05)
    assert cost.cost(1, 1) == pytest.approx(20, rel=0.05)
    assert cost.cost(16, 16) > 1.3 * CostModel([10.0, 20.0], (1, 8)).cost(16, 16)


def test_a_size_that_costs_more_than_its_line_is_told_apart() -> None:
    cost = CostModel([10.0, 17.0], (1, 8))
    for _ in range(100):
        cost.observe(1, 1, 10.0)
        cost.observe(1, 4, 26.0)
    assert cost.cost(1, 1) == pytest.approx(10, rel=0.05)
    assert cost.cost(1, 4) == pytest.approx(26, rel=0.05)


def test_one_disturbed_pass_changes_little() -> None:
    cost = known(CostModel([10.0, 20.0], (1, 8)), passes=50)
    cost.observe(1, 1, 10_000.0)
    assert cost.cost(1, 8) / cost.cost(1, 1) == pytest.approx(2, rel=0.1)


def test_no_tree_is_chosen_before_plain_passes_have_been_seen() -> None:
    """Without them a tree's cost was compared with a guess, and trees went on for ever."""
    cost = CostModel([10.0, 10.0], (1, 64))
    assert worth_verifying([[1.0, 0.9]], 1, cost) == [{0}]
    assert worth_verifying([[1.0, 0.9]], 1, known(cost)) == [{0, 1}]
    for _ in range(500):
        cost.observe(1, 2, 10.0)
    assert worth_verifying([[1.0, 0.9]], 1, cost) == [{0}], "it is looked at again in time"


def test_a_pass_that_reads_its_weights_costs_the_same_for_any_rows() -> None:
    """Told apart, noise of seconds looked like the price of rows, and trees stayed small."""
    cost = FlatCost(1000.0)
    assert cost.knows_plain(1), "no pass is made plain for the sake of knowing"
    for rows in (1, 40, 1, 40):
        cost.observe(1, rows, 3000.0 if rows > 1 else 1000.0)
    assert cost.cost(1, 1) == cost.cost(1, 40) == cost.cost(4, 200) > 1000.0
    assert worth_verifying([[1.0, 0.5, 0.05, 0.01]], 1, cost) == [{0, 1, 2, 3}]


def test_disturbances_at_start_up_do_not_hit_one_point_alone() -> None:
    calls = iter(range(1000))
    cost = CostModel.measured(lambda rows: 10.0 * rows * (1 + 9 * (next(calls) < 4)), (1, 2, 4))
    assert [cost.cost(1, n) for n in (1, 2, 4)] == pytest.approx([10, 20, 40])
