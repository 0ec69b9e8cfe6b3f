"""Every verifier keeps the LLM's joint law: proved by walking every outcome, not by sampling.

The code under test is the code that serves: the same drawing, merging, warping and verifying,
with the source of randomness replaced by one that takes every path (specinfer.testing.law).
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch

from specinfer.choices import Choices
from specinfer.config import TreeShape
from specinfer.draft.children import draw_children
from specinfer.draft.merge import merge
from specinfer.draft.shape import Shape
from specinfer.request import SamplingParams
from specinfer.testing.law import exact_law
from specinfer.testing.toy import TableModel, table_model
from specinfer.token_tree import Draw, TokenTree
from specinfer.verify import draws_with_replacement, multi_step, verify
from specinfer.warp import warp

SAMPLING = SamplingParams(temperature=1.0)
WARPED = SamplingParams(temperature=0.7, top_k=3, top_p=0.9)

CAUGHT = 1e-3  # sound programs stay below 1e-12

Drawing = Callable[..., None]
Widths = Sequence[int] | Shape


def grow(
    ssm: TableModel, widths: Widths, params: SamplingParams, choices: Choices, draw: Drawing
) -> TokenTree:
    """Expand one SSM's tree level by level, as Expansion does with a real SSM."""
    shape = widths if isinstance(widths, Shape) else Shape.of(TreeShape(tuple(widths)))
    tree = TokenTree.rooted_at(0)
    places = {0: 0}
    for node, _ in enumerate(iter(lambda: len(tree), 0)):  # the tree grows meanwhile
        if node == len(tree):
            return tree
        place = places[node]
        if shape.children[place]:
            row = ssm(tuple(tree.tokens_to(node))).log()
            draw(tree, node, row, shape.children[place], params, choices)
        for rank, drawn in enumerate(tree.draws[node]):
            places.setdefault(drawn.child, shape.firsts[place] + rank)
    raise AssertionError("the tree ends")


def points(context_of: TableModel, widths: Widths) -> TokenTree:
    """Propose the likeliest tokens outright, as look-up drafters do."""
    greedy = SamplingParams()
    return grow(context_of, widths, greedy, None, draw_children)  # type: ignore[arg-type]


def step(
    llm: TableModel,
    trees: Callable[[Choices], list[TokenTree]],
    length: int,
    params: SamplingParams,
    verifier: str,
    choices: Choices,
) -> tuple[int, ...]:
    """Draft, merge, verify once; then let the LLM itself draw up to the given length."""
    tree = merge(trees(choices))
    rows = torch.stack([llm(tuple(tree.tokens_to(node))).log() for node in range(len(tree))])
    accepted, following = verify(tree, rows, params, choices, verifier)  # type: ignore[arg-type]
    out = [*(tree.tokens[node] for node in accepted), following]
    while len(out) < length:
        out.append(choices.draw(warp(llm(tuple(out)).log()[None], params)[0]))
    return tuple(out)


def worst_error(
    vocab: int,
    widths: Widths,
    *,
    ssms: int = 0,
    lookups: int = 0,
    params: SamplingParams = SAMPLING,
    verifier: str = "multi_step",
    draw: Drawing = draw_children,
    seed: int = 0,
) -> float:
    """Return the largest difference between the emitted joint law and the LLM's own."""
    llm, *others = (table_model(vocab, seed + i) for i in range(1 + ssms + lookups))
    length = 1 + (widths.depth if isinstance(widths, Shape) else len(widths))

    def trees(choices: Choices) -> list[TokenTree]:
        drawn = [grow(ssm, widths, params, choices, draw) for ssm in others[:ssms]]
        return drawn + [points(table, widths) for table in others[ssms:]]

    got = exact_law(lambda choices: step(llm, trees, length, params, verifier, choices))
    assert sum(got.values()) == pytest.approx(1, abs=1e-12)
    worst = 0.0
    for sequence in itertools.product(range(vocab), repeat=length):
        want = 1.0
        for place, token in enumerate(sequence):
            want *= float(warp(llm(sequence[:place]).log()[None], params)[0, token])
        worst = max(worst, abs(got.get(sequence, 0.0) - want))
    return worst


PROGRAMS = [
    pytest.param(3, (2,), {"ssms": 1}, id="one SSM <2>"),
    pytest.param(3, (1,), {"ssms": 2}, id="two SSMs <1>"),
    pytest.param(3, (2,), {"ssms": 2}, id="two SSMs <2>"),
    pytest.param(2, (2, 1), {"ssms": 1}, id="one SSM <2,1>"),
    pytest.param(3, (1, 1), {"ssms": 1}, id="one SSM <1,1>"),
    pytest.param(2, (1, 1), {"ssms": 2}, id="two SSMs <1,1>"),
    pytest.param(3, Shape((2, 1, 0, 0)), {"ssms": 1}, id="one SSM, a child below the first"),
    pytest.param(3, Shape((2, 0, 1, 0)), {"ssms": 1}, id="one SSM, a child below the second"),
    pytest.param(2, Shape((2, 2, 1, 0, 0, 0)), {"ssms": 1}, id="one SSM, uneven children"),
    pytest.param(2, Shape((2, 0, 1, 0)), {"ssms": 1, "lookups": 1}, id="uneven, point masses"),
    pytest.param(4, (2,), {"lookups": 1}, id="point masses <2>"),
    pytest.param(3, (2, 1), {"lookups": 2}, id="two of point masses <2,1>"),
    pytest.param(3, (1,), {"ssms": 1, "lookups": 1}, id="an SSM and point masses <1>"),
    pytest.param(2, (1, 1), {"ssms": 1, "lookups": 1}, id="an SSM and point masses <1,1>"),
]


@pytest.mark.parametrize("verifier", ["multi_step", "naive", "multi_step_wor", "traversal"])
@pytest.mark.parametrize("params", [SAMPLING, WARPED], ids=["plain", "warped"])
@pytest.mark.parametrize(("vocab", "widths", "pool"), PROGRAMS)
def test_joint_law_is_the_llms(
    vocab: int, widths: Widths, pool: dict[str, int], params: SamplingParams, verifier: str
) -> None:
    draw = partial(draw_children, replacement=draws_with_replacement(verifier))  # type: ignore[arg-type]
    assert worst_error(vocab, widths, **pool, params=params, verifier=verifier, draw=draw) < 1e-12


def test_traversal_is_exact_on_draws_with_replacement_too() -> None:
    shapes: list[tuple[int, Widths]] = [(3, (2,)), (2, (2, 1)), (2, (2, 2)), (3, (1, 1))]
    for vocab, widths in [*shapes, (2, Shape((2, 0, 1, 0))), (2, Shape((2, 2, 1, 0, 0, 0)))]:
        assert worst_error(vocab, widths, ssms=1, verifier="traversal") < 1e-12


def test_multi_step_rejects_no_more_than_naive_sampling() -> None:
    """Theorem 4.3, on the same independent draws."""
    for seed in range(5):
        naive, multi = (rejection(seed, verifier) for verifier in ("naive", "multi_step"))
        assert multi <= naive + 1e-12


def rejection(seed: int, verifier: str) -> float:
    """Return how likely it is that neither of two draws of one SSM is accepted."""
    llm, ssm = table_model(4, 2 * seed), table_model(4, 2 * seed + 1)

    def fails(choices: Choices) -> bool:
        tree = grow(ssm, (2,), SAMPLING, choices, draw_children)
        rows = torch.stack([llm(tuple(tree.tokens_to(n))).log() for n in range(len(tree))])
        accepted, _ = verify(tree, rows, SAMPLING, choices, verifier)  # type: ignore[arg-type]
        return not accepted

    return exact_law(fails)[True]


# Each mistake below is one that published code makes; the law must show it.


def test_forgetting_the_residual_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_step, "_residual", lambda law, draw, token: law)
    assert worst_error(3, (2,), ssms=1) > CAUGHT


def test_dropping_the_second_drafters_duplicate_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    once = _edited(lambda draws: list({draw.child: draw for draw in reversed(draws)}.values()))
    assert _worst_after(once, monkeypatch, ssms=2, widths=(1,)) > CAUGHT


def test_trying_likelier_children_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_q(tree: TokenTree, draws: list[Draw]) -> list[Draw]:
        return sorted(draws, key=lambda d: -float(d.law[tree.tokens[d.child]]))  # type: ignore[index]

    assert _worst_after(by_q, monkeypatch, ssms=1, widths=(2,)) > CAUGHT


def test_trying_the_surer_ssm_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_q(tree: TokenTree, draws: list[Draw]) -> list[Draw]:
        return sorted(draws, key=lambda d: -float(d.law[tree.tokens[d.child]]))  # type: ignore[index]

    assert _worst_after(by_q, monkeypatch, ssms=2, widths=(1,)) > CAUGHT


def test_pruning_the_least_likely_child_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def prune(tree: TokenTree, draws: list[Draw]) -> list[Draw]:
        if len(draws) < 2:
            return draws
        worst = min(draws, key=lambda d: float(d.law[tree.tokens[d.child]]))  # type: ignore[index]
        return [draw for draw in draws if draw is not worst]

    assert _worst_after(prune, monkeypatch, ssms=1, widths=(2,)) > CAUGHT


def test_top_k_children_with_ssm_probabilities_are_caught() -> None:
    def top_k(tree, node, row, width, params, choices) -> None:  # type: ignore[no-untyped-def]
        law = warp(row[None], params)[0]
        for token in law.topk(width).indices.tolist():
            tree.add(node, token, law)

    assert worst_error(3, (2,), ssms=1, draw=top_k) > CAUGHT


def test_draws_without_replacement_under_the_full_law_are_caught() -> None:
    assert worst_error(4, (2,), ssms=1, draw=_without_replacement(told=False), seed=4) > CAUGHT


def test_draws_without_replacement_are_exact_when_each_law_is_told() -> None:
    assert worst_error(4, (2,), ssms=1, draw=_without_replacement(told=True), seed=4) < 1e-12


def test_scalar_residual_of_the_parent_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subtracting one number from every token is the mistake of a widely copied listing."""

    def scalar(law, draw, token):  # type: ignore[no-untyped-def]
        owed = (law - draw.law[token]).clamp(min=0)
        return owed / owed.sum() if owed.sum() > 0 else law

    monkeypatch.setattr(multi_step, "_residual", scalar)
    assert worst_error(4, (2,), ssms=1, seed=4) > CAUGHT


Edit = Callable[[TokenTree, list[Draw]], list[Draw]]


def _edited(change: Callable[[list[Draw]], list[Draw]]) -> Edit:
    return lambda tree, draws: change(draws)


def _worst_after(
    edit: Edit, monkeypatch: pytest.MonkeyPatch, *, ssms: int, widths: tuple[int, ...]
) -> float:
    """Return the error when every node's draws are tampered with before verification."""
    sound = multi_step.verify_multi_step

    def tampered(tree, laws, choices):  # type: ignore[no-untyped-def]
        tree.draws = [edit(tree, draws) for draws in tree.draws]
        return sound(tree, laws, choices)

    monkeypatch.setattr("specinfer.verify.verify_multi_step", tampered)
    return worst_error(3, widths, ssms=ssms)


def _without_replacement(*, told: bool) -> Drawing:
    def draw(tree, node, row, width, params, choices) -> None:  # type: ignore[no-untyped-def]
        law = warp(row[None], params)[0]
        rest, gone = law, ()
        for _ in range(width):
            token = choices.draw(rest)
            tree.add(node, token, law, without=gone if told else ())
            gone = (*gone, token)
            rest = tree.draws[node][-1].law.clone()
            rest[list(gone)] = 0
            rest = rest / rest.sum()

    return draw
