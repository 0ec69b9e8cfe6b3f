"""The kernels' plan of a tree is right for every small tree, and the walks over it keep the law.

Every tree of up to four draws, the same token twice among them, is walked by kernels with numbers
from just inside both ends of what each decision of the host's walks has for each outcome.  So no
outcome's probability differs by more than the ends are cut off by.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from specinfer.testing.law import Recorded, Replay, exact_law
from specinfer.token_tree import ROOT, TokenTree
from specinfer.verify import verify_multi_step, verify_traversal
from specinfer.verify.columns import Columns
from specinfer_kernels import Draws, walk_trees

VOCAB = 3
MOST = 4  # draws of a tree
INSIDE = 1e-9  # of an outcome's share of numbers
WALKS = {"multi_step": verify_multi_step, "traversal": verify_traversal}


class Case(NamedTuple):
    """A tree, numbers, and what the host's walk makes of them."""

    tree: TokenTree
    rows: Tensor
    numbers: list[float]
    verdict: tuple[int, int, int]  # last node, token, numbers used


@cache
def llm_law(*seed: int) -> Tensor:
    weights = np.random.default_rng([*seed, 5]).random(VOCAB) ** 2
    return torch.from_numpy(weights / weights.sum())


@cache
def ssm_law(*seed: int) -> Tensor:
    """Return a law that likes the tokens that trees are made of too well."""
    weights = np.random.default_rng([*seed, 6]).random(VOCAB) * (1, 1, 0.1)
    return torch.from_numpy(weights / weights.sum())


Kind = Callable[[TokenTree, int, int], dict[str, object]]
Edit = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def outright(tree: TokenTree, parent: int, token: int) -> dict[str, object]:
    return {}


def independent(tree: TokenTree, parent: int, token: int) -> dict[str, object]:
    """By one law beneath each node."""
    drawn = tree.draws[parent]
    return {"law": drawn[0].law if drawn else ssm_law(parent)}


def by_turns(tree: TokenTree, parent: int, token: int) -> dict[str, object]:
    """By one SSM, outright, by another SSM ..."""
    number = len(tree.draws[parent])
    return {"law": ssm_law(parent, number) if number % 2 == 0 else None}


def without_replacement(tree: TokenTree, parent: int, token: int) -> dict[str, object]:
    """By one law beneath each node, whose tokens are drawn once; by another when they return."""
    drawn = tree.draws[parent]
    tokens = tuple(tree.tokens[draw.child] for draw in drawn)
    if token in tokens:
        return {"law": ssm_law(parent, len(drawn))}
    return {"law": drawn[0].law if drawn else ssm_law(parent), "without": tokens}


KINDS = [outright, independent, by_turns, without_replacement]


def trees(kind: Kind, most: int = MOST) -> Iterator[TokenTree]:
    """Yield every tree of up to so many draws of two tokens, each beneath any node there is."""
    todo: list[tuple[tuple[int, int], ...]] = [()]
    while todo:
        adds = todo.pop()
        tree = TokenTree.rooted_at(0)
        for parent, token in adds:
            tree.add(parent, token, **kind(tree, parent, token))  # type: ignore[arg-type]
        yield tree
        if len(adds) < most:
            todo += [(*adds, (parent, token)) for parent in range(len(tree)) for token in (0, 1)]


def rows_of(tree: TokenTree, seed: int) -> Tensor:
    """Return one LLM's laws after the nodes, [T, V] float64."""
    return torch.stack([llm_law(seed, *tree.tokens_to(node)) for node in range(len(tree))])


def cases(walk: str, kind: Kind, most: int) -> Iterator[Case]:
    """Yield every outcome of the host's walk over every tree, by numbers at both of its ends."""
    for seed, tree in enumerate(trees(kind, most)):
        laws = rows_of(tree, seed)
        for place in (INSIDE, 1 - INSIDE):
            found: list[Case] = []

            def outcome(replay: Replay) -> int:
                assert isinstance(replay, Recorded)
                accepted, token = WALKS[walk](tree, laws, replay)  # noqa: B023
                last = accepted[-1] if accepted else ROOT
                verdict = (last, token, len(replay.numbers))
                found.append(Case(tree, laws, replay.numbers, verdict))  # noqa: B023
                return 0

            total = exact_law(outcome, partial(Recorded, place=place))[0]
            assert total == pytest.approx(1, abs=1e-12)
            yield from found


def wrong(walk: str, kind: Kind, planned: str = "", edit: Edit = dict, most: int = MOST) -> int:
    """Return how many outcomes differ when kernels walk by a plan, perhaps another or tampered."""
    asked = list(cases(walk, kind, most))
    columns = Columns.of([case.tree for case in asked], planned or walk)  # type: ignore[arg-type]
    arrays = {name: torch.from_numpy(array) for name, array in edit(columns.arrays()).items()}
    numbers = np.full((len(asked), 4 * MOST), 0.5)  # a wrong plan may use more than it should
    for line, case in zip(numbers, asked, strict=True):
        line[: len(case.numbers)] = case.numbers
    got = walk_trees(
        torch.cat([case.rows for case in asked]),
        Draws(**arrays, proposals=columns.proposals),
        torch.from_numpy(numbers),
        rule=walk,  # type: ignore[arg-type]
    )
    want = torch.tensor([case.verdict for case in asked])
    return int((got != want).any(1).sum())


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_outcome_on_every_small_tree_has_the_hosts_probability(walk, kind) -> None:
    assert wrong(walk, kind) == 0


def test_every_draw_knows_where_it_hangs() -> None:
    """By what a kernel climbs and looks rows up, where the reference calls itself."""
    every = list(trees(independent))
    for walk in WALKS:
        plan = Columns.of(every, walk)  # type: ignore[arg-type]
        for number, tree in enumerate(every):
            for draw in range(*plan.starts[number : number + 2]):
                above, parent = plan.above[draw], plan.parents[draw]
                assert tree.parents[plan.children[draw]] == parent
                assert (above < 0) == (parent == ROOT)
                if above >= 0:
                    assert plan.starts[number] <= above < draw
                    assert plan.children[above] == parent
                    assert plan.below[above] >= 0  # a second draw, by traversal, leads nowhere


def test_trying_a_tokens_second_draw_as_more_than_a_leaf_is_caught() -> None:
    """As the other plan has it, where it makes no difference: a second draw is always refused."""
    assert wrong("traversal", independent, "multi_step") > 0


def _all(value: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda column: np.full_like(column, value)


@pytest.mark.parametrize(
    ("kind", "column", "change"),
    [
        pytest.param(independent, "following", _all(-1), id="siblings forgotten"),
        pytest.param(independent, "below", _all(-1), id="children forgotten"),
        pytest.param(independent, "proposal", _all(-1), id="draws taken for point masses"),
        pytest.param(by_turns, "proposal", lambda c: c.clip(0), id="point masses taken for draws"),
        pytest.param(by_turns, "proposal", lambda c: np.roll(c, 1), id="another's law"),
        pytest.param(without_replacement, "without", _all(-1), id="earlier draws forgotten"),
        pytest.param(outright, "tokens", lambda c: 1 - c, id="the sibling's token"),
        pytest.param(outright, "roots", lambda c: np.roll(c, 1), id="another tree's rows"),
    ],
)
@pytest.mark.parametrize("walk", WALKS)
def test_a_slip_in_the_plan_is_caught(walk, kind, column, change) -> None:
    assert (
        wrong(walk, kind, edit=lambda arrays: arrays | {column: change(arrays[column])}, most=3) > 0
    )
