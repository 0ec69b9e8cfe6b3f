"""An SSM is judged by what it adds to what is found without it."""

from specinfer.config import TreeShape
from specinfer.cost_model import CostModel
from specinfer.draft.beside import Beside, found_without
from specinfer.draft.planner import REPLAN, Planner, cut_short
from specinfer.draft.ranks import Profile
from specinfer.token_tree import ROOT, TokenTree

CHAIN = TreeShape((1, 1, 1))


def test_what_others_found_ends_where_only_it_had_the_token() -> None:
    tree = TokenTree.rooted_at(0)
    one = tree.add(ROOT, 5, drafter=0)
    tree.add(ROOT, 5, drafter=2)
    two = tree.add(one, 6, drafter=0)
    tree.add(two, 7, drafter=2)
    assert found_without({0}, tree, [5, 6, 7]) == 1  # 7 hangs below what only it had
    assert found_without({1}, tree, [5, 6, 7, 8]) == 3
    assert found_without({0, 2}, tree, [5, 6]) == 0


def test_sums_fade_and_begin_with_being_alone() -> None:
    beside = Beside()
    assert (beside.emitted, beside.expected(2.5)) == (1.0, 2.5)
    for _ in range(1000):
        beside.add(3, 3, 2)
    assert 2.9 < beside.emitted < 3.0
    assert beside.expected(4.0) < beside.emitted + 1.05  # of three tokens one was new
    for _ in range(1000):
        beside.add(3, 3, 0)
    assert beside.emitted < 1.01 and beside.expected(4.0) > 3.9
    for _ in range(1000):
        beside.add(3, 0, 0)
    assert beside.expected(4.0) < 1.05  # what is never verified is worth nothing


def planner() -> Planner:
    llm = CostModel([10.0, 10.0], (1, 64))
    for _ in range(8):
        llm.observe(1, 1, 10.0)
    return Planner(cut_short(CHAIN), Profile(), ssm=CostModel([1.0, 1.0], (1, 64)), llm=llm)


def drafts(others: int) -> bool:
    """Tell whether an SSM that is always right is asked, if others have so many tokens right."""
    chosen = planner()
    tree = TokenTree.rooted_at(0)
    node = ROOT
    for token in (1, 2, 3):
        node = tree.add(node, token)
    for _ in range(4 * REPLAN):
        chosen.observe(tree, [1, 2, 3, 4], greedy=True, others=others)
        last = chosen.shape(1, greedy=True)
    return last is not None


def test_it_sits_out_while_others_are_right_and_no_longer() -> None:
    chosen, tree = planner(), TokenTree.rooted_at(0)
    tree.add(tree.add(ROOT, 1), 2)
    for _ in range(4 * REPLAN):
        for found in (True, False):
            others = 2 if found else 0
            chosen.observe(tree, [1, 2, 3], greedy=True, others=others, found=found)
            chosen.shape(1, greedy=True, found=found)
    assert chosen.shape(1, greedy=True, found=True) is None
    assert chosen.shape(1, greedy=True, found=False) is not None


def test_it_is_asked_only_where_it_adds_enough() -> None:
    assert drafts(0) and drafts(1)
    assert not drafts(3)
