"""What is worth verifying: measured costs against learnt chances."""

import random

import pytest

from specinfer.cost_model import CostModel
from specinfer.draft.acceptance import PRIOR, Acceptance
from specinfer.draft.budget import pruned, worth_verifying
from specinfer.testing.toy import a_request
from specinfer.token_tree import ROOT, TokenTree

FLAT = CostModel([10.0, 10.0, 10.0], (1, 8, 64))
STEEP = CostModel([10.0, 80.0, 640.0], (1, 8, 64))


def chain(length: int) -> TokenTree:
    tree, node = TokenTree.rooted_at(0), ROOT
    for token in range(1, length + 1):
        node = tree.add(node, token)
    return tree


def test_free_rows_are_all_taken() -> None:
    assert worth_verifying([[1.0, 0.5, 0.25, 0.01]], 1, FLAT) == [{0, 1, 2, 3}]


def test_rows_that_cost_a_step_each_are_not() -> None:
    assert worth_verifying([[1.0, 0.9, 0.8]], 1, STEEP) == [{0}]


def test_nodes_of_all_requests_compete() -> None:
    cost = CostModel([10.0, 12.0, 60.0], (1, 4, 8))
    kept = worth_verifying([[1.0, 0.9, 0.8], [1.0, 0.05, 0.01]], 2, cost)
    assert kept == [{0, 1, 2}, {0}]


def test_the_choice_is_the_best_of_all_sizes() -> None:
    """Against brute force over every number of nodes, likeliest first."""
    rng = random.Random(0)
    for _ in range(100):
        cost = CostModel(sorted(rng.uniform(1, 30) for _ in range(4)), (1, 4, 16, 64))
        chances = [[1.0, *sorted((rng.random() for _ in range(6)), reverse=True)] for _ in "ab"]
        flat = sorted((c for own in chances for c in own[1:]), reverse=True)
        rates = [(2 + sum(flat[:n])) / cost.cost(2 + n) for n in range(len(flat) + 1)]
        kept = worth_verifying(chances, 2, cost)
        assert rates[sum(map(len, kept)) - 2] == pytest.approx(max(rates))


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
        learnt.observe(request, tree, [1, 2])
    assert learnt.chances(request, tree)[2] > 0.9
    for _ in range(800):
        learnt.observe(request, tree, [])
    assert learnt.chances(request, tree)[1] < 0.1


def test_a_request_that_does_worse_than_the_rest_is_told_apart() -> None:
    learnt, good, bad = Acceptance(), a_request([1]), a_request([2])
    for _ in range(50):
        learnt.observe(good, chain(1), [1])
        learnt.observe(bad, chain(1), [])
    assert learnt.chances(good, chain(1))[1] > 2 * learnt.chances(bad, chain(1))[1]
    learnt.forget(bad)
    assert learnt.chances(bad, chain(1))[1] == pytest.approx(
        learnt.chances(a_request([3]), chain(1))[1]
    )


def test_nodes_whose_parent_fell_teach_nothing() -> None:
    learnt, request = Acceptance(), a_request([1])
    learnt.observe(request, chain(3), [])
    assert sum(record.trials for record in learnt._keys.values()) == 1


def test_costs_are_lines_between_points_and_never_fall() -> None:
    cost = CostModel([10.0, 8.0, 30.0], (1, 4, 8))
    assert [cost.cost(n) for n in (1, 2, 4, 6, 8)] == [10, 10, 10, 20, 30]
    assert cost.cost(12) == 50


def test_costs_follow_the_machine() -> None:
    cost = CostModel([10.0, 20.0], (1, 8))
    for _ in range(200):
        cost.observe(8, 40.0)
        cost.observe(1, 20.0)
    assert cost.cost(8) == pytest.approx(40, rel=0.2)
    assert cost.cost(1) == pytest.approx(20, rel=0.2)
