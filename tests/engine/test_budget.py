"""What is worth verifying: measured costs against learnt chances."""

import random

import pytest

from specinfer.cost_model import CostModel, FlatCost
from specinfer.draft.acceptance import PRIOR, Acceptance
from specinfer.draft.budget import GAIN, price, pruned, worth_verifying
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


def chain(length: int) -> TokenTree:
    tree, node = TokenTree.rooted_at(0), ROOT
    for token in range(1, length + 1):
        node = tree.add(node, token)
    return tree


def test_free_rows_are_all_taken() -> None:
    kept, gain = worth_verifying([[1.0, 0.5, 0.25, 0.01]], 1, FLAT)
    assert kept == [{0, 1, 2, 3}]
    assert gain == pytest.approx(1.76)


def test_rows_that_cost_a_step_each_are_not() -> None:
    assert worth_verifying([[1.0, 0.9, 0.8]], 1, known(STEEP)) == ([{0}], 1.0)


def test_nodes_of_all_requests_compete() -> None:
    cost = known(CostModel([10.0, 12.0, 60.0], (1, 4, 8)))
    kept, _ = worth_verifying([[1.0, 0.9, 0.8], [1.0, 0.05, 0.01]], 2, cost)
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
        kept, _ = worth_verifying(chances, 2, cost)
        assert rates[sum(map(len, kept)) - 2] == pytest.approx(best)


def test_what_is_kept_fetches_the_price_on_average() -> None:
    rng = random.Random(1)
    for _ in range(100):
        cost = known(CostModel(sorted(rng.uniform(5, 30) for _ in range(4)), (1, 4, 16, 64)))
        chances = [[1.0, *sorted((rng.random() for _ in range(6)), reverse=True)] for _ in "ab"]
        kept, _ = worth_verifying(chances, 2, cost)
        pairs = zip(chances, kept, strict=True)
        stand = [own[node] for own, nodes in pairs for node in nodes if node != ROOT]
        assert not stand or sum(stand) / len(stand) >= price(2, 2, cost)


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


def test_a_request_that_ceases_to_do_well_is_found_out() -> None:
    learnt, copying = Acceptance(), a_request([1])
    for _ in range(400):
        learnt.observe(a_request([2]), chain(1), [9])
        learnt.observe(copying, chain(1), [1, 2])
    assert learnt.chances(copying, chain(1))[1] > 0.6
    steps = 0
    while learnt.chances(copying, chain(1))[1] > 0.3:
        learnt.observe(copying, chain(1), [9])
        steps += 1
    assert steps < 50


def test_a_guess_that_was_not_drafted_had_its_trial() -> None:
    learnt, request = Acceptance(), a_request([1])
    tree = chain(1)
    for _ in range(200):
        learnt.observe(request, tree, [5], [((0, 0), 1), ((1, 7), 5)])
    assert learnt.rate(0, 0) < 0.1
    assert learnt.rate(1, 7) > 0.9
    assert learnt._keys[0, 0].trials == 200, "what was drafted counts once"


def test_nodes_whose_parent_fell_teach_nothing() -> None:
    learnt, request = Acceptance(), a_request([1])
    learnt.observe(request, chain(3), [9])
    assert sum(record.trials for record in learnt._keys.values()) == 1


def test_a_node_behind_the_last_token_has_had_no_trial() -> None:
    learnt, request = Acceptance(), a_request([1])
    learnt.observe(request, chain(3), [1, 2])
    assert learnt._keys[0, 0].trials == learnt._keys[0, 0].successes == 2


def test_costs_are_lines_between_points_and_never_fall() -> None:
    cost = CostModel([10.0, 8.0, 30.0], (1, 4, 8))
    assert [cost.cost(1, n) for n in (1, 2, 4, 6, 8, 12)] == pytest.approx([10, 10, 10, 20, 30, 50])


def test_costs_of_more_rows_are_kept_for_a_while() -> None:
    cost = CostModel([10.0, 17.0], (1, 8))
    assert cost.costs(1, 1)[:3] == pytest.approx([10, 11, 12])
    for _ in range(100):
        cost.observe(1, 1, 20.0)
    assert cost.costs(1, 1)[:3] == pytest.approx([cost.cost(1, n) for n in (1, 2, 3)], rel=0.1)
    assert cost.costs(1, 1)[0] == pytest.approx(20, rel=0.1)


def test_costs_follow_the_machine() -> None:
    cost = CostModel([10.0, 20.0], (1, 8))
    for _ in range(100):
        cost.observe(1, 8, 40.0)
        cost.observe(1, 1, 20.0)
    assert cost.cost(1, 8) == pytest.approx(40, rel=0.05)
    assert cost.cost(1, 1) == pytest.approx(20, rel=0.05)
    assert cost.cost(16, 16) > 1.25 * CostModel([10.0, 20.0], (1, 8)).cost(16, 16)


def test_a_size_that_costs_more_than_its_line_is_told_apart() -> None:
    cost = CostModel([10.0, 17.0], (1, 8))
    for _ in range(100):
        cost.observe(1, 1, 10.0)
        cost.observe(1, 4, 26.0)
    assert cost.cost(1, 1) == pytest.approx(10, rel=0.05)
    assert cost.cost(1, 4) == pytest.approx(26, rel=0.05)


def test_dear_trees_do_not_make_plain_steps_look_dear() -> None:
    """Their price went into the common pace, and plain steps seemed to take a third more."""
    cost = CostModel([10.0, 12.0], (1, 8))
    for step in range(400):
        dear = step % 40 > 0
        cost.observe(8, 11 if dear else 8, 18.0 if dear else 12.0)
    assert cost.cost(8, 8) == pytest.approx(12, rel=0.05)
    assert cost.cost(8, 11) == pytest.approx(18, rel=0.05)


def test_one_disturbed_pass_changes_little() -> None:
    cost = known(CostModel([10.0, 20.0], (1, 8)), passes=50)
    cost.observe(1, 1, 10_000.0)
    assert cost.cost(1, 8) / cost.cost(1, 1) == pytest.approx(2, rel=0.1)


def test_no_tree_is_chosen_before_plain_passes_have_been_seen() -> None:
    """Without them a tree's cost was compared with a guess, and trees went on for ever."""
    cost = CostModel([10.0, 10.0], (1, 64))
    assert worth_verifying([[1.0, 0.9]], 1, cost)[0] == [{0}]
    assert worth_verifying([[1.0, 0.9]], 1, known(cost))[0] == [{0, 1}]
    for _ in range(500):
        cost.observe(1, 2, 10.0)
    assert worth_verifying([[1.0, 0.9]], 1, cost)[0] == [{0}], "it is looked at again in time"


def test_a_pass_that_reads_its_weights_costs_the_same_for_any_rows() -> None:
    """Told apart, noise of seconds looked like the price of rows, and trees stayed small."""
    cost = FlatCost(1000.0)
    assert cost.knows_plain(1), "no pass is made plain for the sake of knowing"
    for rows in (1, 40, 1, 40):
        cost.observe(1, rows, 3000.0 if rows > 1 else 1000.0)
    assert cost.cost(1, 1) == cost.cost(1, 40) == cost.cost(4, 200) > 1000.0
    assert worth_verifying([[1.0, 0.5, 0.05, 0.01]], 1, cost)[0] == [{0, 1, 2, 3}]


def test_disturbances_at_start_up_do_not_hit_one_point_alone() -> None:
    calls = iter(range(1000))
    cost = CostModel.measured(lambda rows: 10.0 * rows * (1 + 9 * (next(calls) < 4)), (1, 2, 4))
    assert [cost.cost(1, n) for n in (1, 2, 4)] == pytest.approx([10, 20, 40])
