"""Profiled trees: the best shape by brute force, learnt ranks, and when an SSM is to draft."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from specinfer.config import TreeShape, parse_tree
from specinfer.cost_model import CostModel
from specinfer.draft.planner import REPLAN, Planner, cut_short, of_any_size, of_any_size_or
from specinfer.draft.ranks import FIRST_GUESS, Profile, Ranks
from specinfer.draft.shape import Shape, best_shapes, profiled
from specinfer.errors import ConfigError
from specinfer.token_tree import ROOT, TokenTree

UNSORTED = (0.2, 0.45, 0.0, 0.1)


def every_shape(nodes: int) -> Iterator[Shape]:
    """Yield all shapes with so many nodes below the root."""
    for children in itertools.product(range(nodes + 1), repeat=nodes + 1):
        reachable = all(sum(children[:i]) >= i for i in range(1, nodes + 1))
        if sum(children) == nodes and reachable:
            yield Shape(children)


@pytest.mark.parametrize("rates", [(0.6, 0.2, 0.1), (0.9,), UNSORTED, (0.3, 0.3, 0.3)])
def test_the_programme_finds_what_brute_force_finds(rates: tuple[float, ...]) -> None:
    best = best_shapes(rates, 5, 3)
    for (nodes, depth), shape in best.items():
        smaller = [s for n in range(1, nodes + 1) for s in every_shape(n) if s.depth <= depth]
        assert shape.nodes <= nodes
        assert shape.depth <= depth
        assert shape.expected(rates) == pytest.approx(max(s.expected(rates) for s in smaller))


def test_a_full_tree_has_the_papers_numbers() -> None:
    shape = Shape.of(TreeShape((1, 1, 3, 1)))
    assert shape.children == (1, 1, 3, 1, 1, 1, 0, 0, 0)
    assert shape.levels == (1, 1, 1, 3, 3)
    assert shape.upto(2) == Shape.of(TreeShape((1, 1)))
    assert shape.expected((0.5, 0.25)) == pytest.approx(1 + 0.5 + 0.25 + 0.1875 + 0.09375)


def test_a_level_runs_the_tree_so_far_or_its_own_nodes() -> None:
    shape = Shape((2, 3, 1, 1, 0, 1, 0, 0, 0))
    assert (shape.above, shape.frontiers) == ((0, 2, 6), (1, 2, 2))
    assert (Shape((0,)).above, Shape((0,)).frontiers) == ((), ())


def test_one_whose_levels_alone_cost_takes_any_shape_up_to_the_fixed_ones_size() -> None:
    """Cutting the paper's tree short would leave chains; what is not adapted is the tree itself."""
    tree = TreeShape((1, 1, 3, 1))
    family = of_any_size_or(tree)
    rates = (0.45, 0.12, 0.06, 0.04)
    shapes = family(rates)
    assert shapes[-1] == Shape.of(tree)
    assert max(shape.nodes for shape in shapes) == 8 and max(s.depth for s in shapes) == 4
    llm, profile = CostModel([10.0, 16.0], (1, 32)), Profile(rates, rates, 400.0)
    for _ in range(6):
        llm.observe(1, 1, 10.0)
    ssm = CostModel([0.3, 0.3], (1, 64))
    planner = Planner(family, profile, ssm=ssm, llm=llm, passes=lambda shape: shape.frontiers)
    best = planner.best(1, greedy=True)
    assert best is not None and best.children[0] > 2
    assert planner.whole(greedy=False) == Shape.of(tree)


def test_one_good_rank_makes_a_chain_and_even_ranks_a_bush() -> None:
    assert profiled((0.9, 0.01), 4, 8).children == (1, 1, 1, 1, 0)
    assert profiled((0.2, 0.2, 0.2, 0.2), 4, 8).children == (4, 0, 0, 0, 0)


def test_ranks_are_learnt_along_the_path_of_tokens() -> None:
    tree = TokenTree.rooted_at(0)
    first, second = tree.add(ROOT, 1), tree.add(ROOT, 2)
    tree.add(second, 3)
    tree.add(first, 9)
    ranks = Ranks.starting((0.0, 0.0), 0.0)
    ranks.observe(tree, [2, 3, 4])
    assert (ranks.trials, ranks.successes) == ([2, 1], [1, 1])
    ranks.observe(tree, [2])  # whether 3 follows is not known yet
    assert (ranks.trials, ranks.successes) == ([3, 2], [1, 2])


def test_a_token_drawn_twice_counts_for_the_first_draw() -> None:
    tree = TokenTree.rooted_at(0)
    tree.add(ROOT, 1)
    tree.add(ROOT, 1)
    ranks = Ranks.starting((0.0, 0.0), 0.0)
    ranks.observe(tree, [1])
    assert ranks.successes == [1, 0]


def test_old_trials_fade() -> None:
    tree = TokenTree.rooted_at(0)
    tree.add(ROOT, 1)
    ranks = Ranks.starting((1.0,), 400.0)
    for _ in range(1200):
        ranks.observe(tree, [2])
    assert ranks.rates[0] < 0.06
    assert ranks.trials[0] <= 400


def planner(ssm: float, llm: tuple[float, float] = (50.0, 51.0)) -> Planner:
    """Return a planner over flat costs, with plain passes seen."""
    cost = CostModel(llm, (1, 64))
    for _ in range(9):
        cost.observe(1, 1, llm[0])
    family = of_any_size(12, 4)
    return Planner(family, Profile(), ssm=CostModel([ssm, ssm], (1, 64)), llm=cost)


def test_a_cheap_ssm_drafts_deep_and_a_dear_one_not_at_all() -> None:
    cheap = planner(ssm=1.0).shape(1, greedy=True)
    assert cheap is not None
    assert cheap.depth >= 3
    assert planner(ssm=45.0).shape(1, greedy=True) is None


def test_a_dear_beginning_makes_trees_deeper_not_shallower() -> None:
    """A draft's first pass fetches what the later ones find: one mean of both ends trees early."""
    told = planner(ssm=1.0)
    for number, (first, later) in enumerate(((8.0, 1.0), (4.5, 4.5))):
        costs = [CostModel([cost, cost], (1, 64)) for cost in (later, first)]
        told.ssm, told.first = costs
        shape = told.best(1, greedy=True)
        assert shape is not None
        assert (shape.depth >= 3) == (number == 0)


def test_dear_rows_make_small_trees() -> None:
    small = planner(ssm=1.0, llm=(50.0, 1000.0)).shape(1, greedy=True)
    assert small is not None
    assert small.nodes <= 3


def test_an_ssm_that_is_never_right_is_left_alone() -> None:
    """Its rate was learnt from accepted nodes alone, and so stayed at what was guessed."""
    tried = planner(ssm=5.0)
    tree = TokenTree.rooted_at(0)
    for token in range(1, 7):
        tree.add(ROOT, token)
    for _ in range(300):
        tried.observe(tree, [9], greedy=True)
    for _ in range(REPLAN):
        shape = tried.shape(1, greedy=True)
    assert shape is None
    assert tried.shape(1, greedy=False) is not None, "sampling requests have their own rates"


def test_a_first_guess_is_looked_at_again_soon() -> None:
    """A short answer of seconds a step was over before the shape followed what was learnt."""
    tried, tree = planner(ssm=5.0), TokenTree.rooted_at(0)
    first = tried.shape(1, greedy=True)
    assert first is not None
    node = ROOT
    for token in range(1, 5):
        node = tree.add(node, token)
    for _ in range(3):
        tried.observe(tree, [1, 2, 3, 4], greedy=True)
        later = tried.shape(1, greedy=True)
    assert later is not None and later.depth > first.depth


def test_looking_takes_one_hundredth_of_the_time() -> None:
    looker = planner(ssm=25.0)
    assert sum(looker.may_look(1, 8) for _ in range(5000)) == pytest.approx(100, abs=2)
    assert sum(looker.may_look(16, 8) for _ in range(5000)) == pytest.approx(25, abs=2)


def test_no_ssm_runs_before_plain_passes_have_been_seen() -> None:
    cost = CostModel([50.0, 51.0], (1, 64))
    fresh = Planner(of_any_size(4, 4), Profile(), ssm=CostModel([1.0, 1.0], (1, 64)), llm=cost)
    assert fresh.shape(1, greedy=True) is None


def test_what_must_repeat_itself_gets_the_whole_shape_whatever_was_learnt() -> None:
    tried, tree = planner(ssm=1.0), TokenTree.rooted_at(0)
    before = tried.whole(greedy=False)
    tree.add(ROOT, 1)
    for _ in range(300):
        tried.observe(tree, [2], greedy=False)
    assert tried.whole(greedy=False) == before == profiled(FIRST_GUESS, 12, 4)


def test_a_fixed_tree_may_only_be_cut_short() -> None:
    shapes = cut_short(TreeShape((2, 1)))(FIRST_GUESS)
    assert [shape.children for shape in shapes] == [(2, 0, 0), (2, 1, 1, 0, 0)]


def test_a_profile_is_read_and_a_broken_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"greedy": [0.6, 0.2], "sampled": [0.5]}))
    assert Profile.read(path) == Profile((0.6, 0.2), (0.5,))
    for text in ("{}", "[]", "no", '{"greedy": [0.9, 0.3], "sampled": [0.5]}'):
        path.write_text(text)
        with pytest.raises(ConfigError, match="tree_profile"):
            Profile.read(path)
    with pytest.raises(ConfigError, match="tree_profile"):
        Profile.read(tmp_path / "absent")


def test_trees_are_named_by_widths_or_profiled() -> None:
    assert parse_tree("profiled") == "profiled"
    assert parse_tree("<2,1>") == TreeShape((2, 1))
    with pytest.raises(ConfigError, match="profiled"):
        parse_tree("wide")
