"""Warping, drawing and walking on a device, beside what the engine does on the host.

test_triton_interpreted.py runs this file again by Triton's interpreter, in a process of its own.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from specinfer.choices import Law, inverted
from specinfer.sampling import SamplingParams
from specinfer.token_tree import ROOT, TokenTree
from specinfer.verify import verify_multi_step, verify_traversal
from specinfer.warp import warp
from specinfer_kernels import Draws, KernelError, Rule, Warp, draw_tokens, walk_trees, warp_rows
from specinfer_kernels.sampling import reference
from specinfer_kernels.sampling.arguments import RULES
from specinfer_kernels.sampling.testing import Drawn, draws_of

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    from specinfer_kernels.sampling import triton

    SMALL = triton.Shape(block=16, blocks=4)  # 37 tokens: three blocks, not full
    warp_batch: Callable[..., Tensor] = partial(triton.warp_rows, shape=SMALL)
    draw_batch: Callable[..., Tensor] = partial(triton.draw_tokens, shape=SMALL)
    walk_batch: Callable[..., Tensor] = partial(triton.walk_trees, shape=SMALL)
else:
    warp_batch, draw_batch, walk_batch = warp_rows, draw_tokens, walk_trees

VERIFIERS = {"multi_step": verify_multi_step, "traversal": verify_traversal}
VOCAB = 37
TREES = 27 if INTERPRETED else 180  # of each rule
ROWS = 40  # laws of each, for no tree has more nodes
LAST = 1 - 2**-53  # the largest uniform number there is


def warp_of(params: Sequence[SamplingParams]) -> Warp:
    return Warp(
        torch.tensor([p.temperature for p in params]),
        torch.tensor([p.top_k for p in params], dtype=torch.int32),
        torch.tensor([p.top_p for p in params]),
        torch.tensor([p.min_p for p in params]),
    )


# Shares of 1/4, 1/2 and so on lie exactly on the edge of sums of equals.
SETTINGS = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=1e-3),
    SamplingParams(temperature=100.0),
    SamplingParams(temperature=0.7, top_k=1),
    SamplingParams(temperature=0.7, top_k=7),
    SamplingParams(temperature=1.0, top_k=VOCAB + 5),
    SamplingParams(temperature=1.0, top_p=1e-6),
    SamplingParams(temperature=1.3, top_p=0.5),
    SamplingParams(temperature=1.0, top_p=0.9375),
    SamplingParams(temperature=1.0, top_p=0.999999),
    SamplingParams(temperature=2.0, min_p=0.125),
    SamplingParams(temperature=1.0, min_p=1.0),
    SamplingParams(temperature=0.9, top_k=9, top_p=0.75, min_p=0.0625),
    SamplingParams(temperature=1.0, top_k=3, top_p=0.5),
]


def rows_of(kind: str, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(count, VOCAB, generator=generator) * 3
    if kind == "equal":
        return torch.full((count, VOCAB), 2.5)
    if kind == "steps":  # many equals, at the k-th and on top-p's edge
        return rows.round().clamp(-2, 2) * float(np.log(2))
    if kind == "forbidden":
        return rows.masked_fill(torch.rand(rows.shape, generator=generator) < 0.7, -torch.inf)
    if kind == "wide":  # as soft masks make them
        rows[:, ::3] = torch.finfo(torch.float32).min
    return rows


def exact_law(row: Tensor, params: SamplingParams, *, ties: bool) -> Tensor:
    """Return the engine's law, [V]; where equals stand on top-p's edge, it takes any of them."""
    if ties:
        return warp_rows(row, warp_of([params]), backend="reference")[0]
    return warp(row, params)[0]


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # the interpreter's
@pytest.mark.parametrize("kind", ["random", "equal", "steps", "forbidden", "wide"])
def test_rows_become_the_engines_laws(kind: str) -> None:
    rows = rows_of(kind, len(SETTINGS))
    laws = warp_batch(rows, warp_of(SETTINGS))
    torch.testing.assert_close(laws.sum(1), torch.ones(len(rows)))
    for law, row, params in zip(laws, rows, SETTINGS, strict=True):
        exact = exact_law(row[None].double(), params, ties=kind in ("equal", "steps"))
        assert law.gt(0).equal(exact.float().gt(0)), params
        torch.testing.assert_close(law, exact.float(), rtol=3e-6, atol=1e-20)


def test_of_equals_the_lower_ids_stay() -> None:
    row = torch.full((1, VOCAB), -torch.inf)
    row[0, [30, 12, 4, 9]] = 1.5
    row[0, 20] = 1.5 + float(np.log(4))  # half of all
    kept = {"top_k": (3, [4, 9, 20]), "top_p": (0.6875, [4, 9, 20]), "min_p": (0.3, [20])}
    for name, (value, ids) in kept.items():
        params = SamplingParams(temperature=1.0, **{name: value})
        law = warp_batch(row, warp_of([params]))[0]
        assert law.nonzero()[:, 0].tolist() == ids, name


def test_no_row_disturbs_another() -> None:
    rows = rows_of("random", len(SETTINGS))
    laws = warp_batch(rows, warp_of(SETTINGS))
    for place, params in list(enumerate(SETTINGS))[::4]:
        alone = warp_batch(rows[place : place + 1], warp_of([params]))
        assert torch.equal(alone[0], laws[place])


def laws_of(count: int, generator: torch.Generator) -> Tensor:
    """Return laws in which half of the tokens are impossible, [count, VOCAB]."""
    rows = torch.randn(count, VOCAB, generator=generator)
    return rows.masked_fill(torch.rand(rows.shape, generator=generator) < 0.5, -torch.inf).softmax(
        1
    )


def test_drawn_tokens_are_those_of_the_engine(generator: torch.Generator) -> None:
    laws = laws_of(6, generator)
    uniforms = torch.rand(6, 15, generator=generator, dtype=torch.float64)
    uniforms[:, 0], uniforms[:, 1] = 0, LAST
    tokens = draw_batch(laws, uniforms, replacement=True)
    assert tokens.dtype == torch.int64
    for law, numbers, drawn in zip(laws, uniforms, tokens, strict=True):
        assert drawn.tolist() == [inverted(law.numpy(), float(u)) for u in numbers]


def test_numbers_on_the_edges_of_tokens_never_draw_an_impossible_one() -> None:
    law = torch.zeros(2, VOCAB)
    law[0, [5, 7, 20, 33]] = 0.25  # sums are exact, so is every edge
    law[1, 36] = 3.0  # no law, but in proportion to one
    numbers = [0.0, 0.25, 0.5, 0.75, np.nextafter(0.25, 0), np.nextafter(0.5, 0), LAST]
    uniforms = torch.tensor([numbers, numbers], dtype=torch.float64)
    tokens = draw_batch(law, uniforms, replacement=True)
    assert tokens.tolist() == [[5, 7, 20, 33, 5, 7, 33], [36] * 7]


def test_without_replacement_every_token_comes_once_until_none_is_left(
    generator: torch.Generator,
) -> None:
    law = torch.zeros(2, VOCAB)
    law[0, [5, 7, 20, 33]] = torch.tensor([0.125, 0.5, 0.25, 0.125])
    law[1, 2] = 1e-30
    numbers = [0.5, 0.5, 0.0, LAST, 0.25, 0.0]
    uniforms = torch.tensor([numbers, numbers], dtype=torch.float64)
    before = law.clone()
    tokens = draw_batch(law, uniforms, replacement=False)
    # 0.5 lies in 7 [.125, .625); of the rest .125 .25 .125 in 20; then 5 and 33 are left.
    assert tokens.tolist() == [[7, 20, 5, 33, -1, -1], [2, -1, -1, -1, -1, -1]]
    assert torch.equal(law, before)


def test_nothing_to_draw_from_is_told() -> None:
    uniforms = torch.tensor([[0.0, 0.5, LAST]], dtype=torch.float64)
    assert draw_batch(torch.zeros(1, VOCAB), uniforms, replacement=True).tolist() == [[-1] * 3]


@dataclass(slots=True)
class Numbers:
    """Choices made by given uniform numbers."""

    given: list[float]
    used: int = 0

    def accepts(self, probability: float) -> bool:
        return self._next() < probability

    def draw(self, law: Law) -> int:
        return inverted(np.asarray(law), self._next())

    def _next(self) -> float:
        self.used += 1
        return self.given[self.used - 1]


@dataclass(slots=True)
class Grown:
    """A random tree, the engine's and the kernels'."""

    generator: torch.Generator
    laws: Tensor  # of the LLM, by node
    proposals: list[Tensor] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    tree: TokenTree = field(default_factory=lambda: TokenTree.rooted_at(0))

    def draw(self, node: int, width: int, law: Tensor, *, replacement: bool) -> None:
        """Add draws beneath a node as an SSM makes them."""
        self.proposals.append(law)
        gone: tuple[int, ...] = ()
        for _ in range(min(width, int((law > 0).sum()))):
            rest = law.clone()
            rest[list(gone)] = 0
            token = int(torch.multinomial(rest, 1, generator=self.generator))
            self._add(node, token, law, () if replacement else gone)
            gone = (*gone, token)

    def choose(self, node: int, token: int) -> None:
        self._add(node, token, None, ())

    def _add(self, node: int, token: int, law: Tensor | None, gone: tuple[int, ...]) -> None:
        child = self.tree.add(node, token, law, without=gone)
        place = len(self.proposals) - 1 if law is not None else -1
        self.drawn.append(Drawn(node, child, token, place, gone))


def near(law: Tensor, generator: torch.Generator) -> Tensor:
    """Return a law that an SSM might have where the LLM has this one."""
    rough = law * torch.randn(law.shape, generator=generator).exp() + 0.002 * (law == 0)
    return rough / rough.sum()


def grow(kind: str, generator: torch.Generator) -> Grown:
    laws = laws_of(ROWS, generator)
    if kind == "likely":  # so that whole paths are accepted
        laws = (laws.log() * 4).softmax(1)
    grown = Grown(generator, laws)
    widths = {"root": [], "one": [1], "chain": [1] * 9, "wide": [9]}.get(kind, [2, 1, 2])
    level = [ROOT]
    for width in widths:
        for node in level:
            law = laws[node] if kind == "same" else near(laws[node], generator)
            if kind == "wide":  # most of its mass goes with the first draws
                law = law**3 / (law**3).sum()
            grown.draw(node, width, law, replacement=kind == "replacement")
            if kind == "merged":  # a second SSM, and a guess, which often name the same tokens
                second = near(laws[node], generator) if node % 2 else law
                grown.draw(node, 1, second, replacement=False)
                grown.choose(node, int(laws[node].argmax()))
                grown.choose(node, grown.drawn[0].token)
        level = sorted({d.child for d in grown.drawn if d.parent in level})[:5]
    return grown


KINDS = ["root", "one", "chain", "wide", "replacement", "without", "merged", "likely", "same"]


def batch_of(
    trees: Sequence[Grown], rule: Rule, pick: Callable[[Drawn], Drawn] = lambda drawn: drawn
) -> tuple[Tensor, Draws]:
    proposals: list[Tensor] = []
    drawn = []
    for grown in trees:
        base = len(proposals)
        proposals += grown.proposals
        moved = [
            d._replace(proposal=d.proposal + base if d.proposal >= 0 else -1) for d in grown.drawn
        ]
        drawn.append([pick(d) for d in moved])
    roots = [ROWS * place for place in range(len(trees))]
    return torch.cat([grown.laws for grown in trees]), draws_of(drawn, roots, proposals, rule)


def forest(seed: int) -> list[Grown]:
    generator = torch.Generator().manual_seed(seed)
    return [grow(KINDS[place % len(KINDS)], generator) for place in range(TREES)]


def uniforms_for(trees: Sequence[Grown], seed: int = 11) -> Tensor:
    longest = max(len(grown.drawn) for grown in trees) + 2
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(len(trees), longest, generator=generator, dtype=torch.float64)


def engines(trees: Sequence[Grown], rule: Rule, uniforms: Tensor) -> list[list[int]]:
    """Return what the engine's own walks give: node, token, uniforms used."""
    found = []
    for grown, numbers in zip(trees, uniforms.tolist(), strict=True):
        choices = Numbers(numbers)
        path, token = VERIFIERS[rule](grown.tree, grown.laws, choices)
        found.append([path[-1] if path else ROOT, token, choices.used])
    return found


SEEDS = [5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 10))]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", SEEDS)
def test_walks_end_where_the_engines_do(rule: Rule, seed: int) -> None:
    trees = forest(seed)
    uniforms = uniforms_for(trees)
    laws, draws = batch_of(trees, rule)
    before = laws.clone()
    walked = walk_batch(laws, draws, uniforms, rule=rule).tolist()
    assert walked == engines(trees, rule, uniforms)
    assert torch.equal(laws, before)
    ends = [node for node, _, _ in walked]
    moved = {KINDS[place % len(KINDS)] for place, end in enumerate(ends) if end}
    assert moved == {*KINDS} - {"root"}
    assert sum(end > 3 for end in ends) > TREES // 20  # some go deep
    assert max(used for _, _, used in walked) > 4


def test_no_trees_no_verdicts() -> None:
    draws = draws_of([], [], [], "traversal")
    uniforms = torch.zeros(0, 2, dtype=torch.float64)
    assert walk_batch(torch.ones(1, VOCAB), draws, uniforms, rule="traversal").shape == (0, 3)


MISTAKES: dict[str, Callable[[Drawn], Drawn]] = {
    "proposals not renormalised without what was drawn": lambda d: d._replace(without=()),
    "draws taken for choices": lambda d: d._replace(proposal=-1),
    "one SSM's law for another's": lambda d: d._replace(proposal=max(d.proposal, 0)),
}


@pytest.mark.skipif(INTERPRETED, reason="about the comparison, not the kernels")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_records_of_draws_end_elsewhere(rule: Rule, mistake: str) -> None:
    """That the comparison above is sharp enough to see such mistakes."""
    trees = forest(5)
    uniforms = uniforms_for(trees)
    laws, draws = batch_of(trees, rule, MISTAKES[mistake])
    walked = walk_trees(laws, draws, uniforms, rule=rule, backend="reference").tolist()
    assert walked != engines(trees, rule, uniforms)


@pytest.mark.skipif(INTERPRETED, reason="about the comparison, not the kernels")
@pytest.mark.parametrize("rule", RULES)
def test_wrong_walks_end_elsewhere(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """No update between siblings, and numbers taken in another order."""
    trees = forest(5)
    uniforms = uniforms_for(trees)
    laws, draws = batch_of(trees, rule)
    right = engines(trees, rule, uniforms)
    assert walk_trees(laws, draws, uniforms.flip(1), rule=rule).tolist() != right
    monkeypatch.setattr(reference._Tree, "owed", lambda self, law, weight, draw: (law, weight))
    assert walk_trees(laws, draws, uniforms, rule=rule, backend="reference").tolist() != right


@pytest.mark.skipif(INTERPRETED, reason="thousands of programs; equal walks have equal laws")
@pytest.mark.statistical
@pytest.mark.parametrize("rule", RULES)
def test_the_first_token_follows_the_llms_law(rule: Rule, generator: torch.Generator) -> None:
    """Drawn and verified on the device: chi-square of four tokens, false alarm 1e-6."""
    trials = 3000
    laws = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25] * 4, [0.25] * 4])
    proposal = torch.tensor([0.6, 0.2, 0.15, 0.05])
    many = proposal.expand(trials, 4).contiguous()
    numbers = torch.rand(trials, 6, generator=generator, dtype=torch.float64)
    drawn = draw_tokens(many, numbers[:, :2].contiguous(), replacement=rule == "multi_step")
    trees = []
    for first, second in drawn.tolist():
        gone = () if rule == "multi_step" else (first,)
        child = 1 if second == first else 2
        trees.append([Drawn(0, 1, first, 0), Drawn(0, child, second, 0, gone)])
    draws = draws_of(trees, [0] * trials, [proposal], rule)
    walked = walk_trees(laws, draws, numbers[:, 2:].contiguous(), rule=rule)
    counts = torch.zeros(4)
    for (node, token, _), tokens in zip(walked.tolist(), drawn.tolist(), strict=True):
        counts[tokens[node - 1] if node else token] += 1
    expected = laws[0] * trials
    assert float(((counts - expected) ** 2 / expected).sum()) < 30.7  # of 3 degrees of freedom


def test_arguments_that_do_not_fit_are_named(generator: torch.Generator) -> None:
    laws = laws_of(3, generator)
    law = warp_of(SETTINGS[:3])
    with pytest.raises(KernelError, match=r"logits are \(37,\).*must be \[N, V\]"):
        warp_rows(laws[0], law)
    with pytest.raises(KernelError, match="logits are torch.float16"):
        warp_rows(laws.half(), law)
    with pytest.raises(KernelError, match=r"temperature is \(3,\).*it must be \(2,\)"):
        warp_rows(laws[:2], law)
    with pytest.raises(KernelError, match="uniforms is .*it must be .*float64"):
        draw_tokens(laws, torch.zeros(3, 1))
    draws = draws_of([[Drawn(0, 1, 4, 0)]], [0], [laws[0, :5]], "multi_step")
    with pytest.raises(KernelError, match=r"a proposal is \(5,\)"):
        walk_trees(laws, draws, torch.zeros(1, 3, dtype=torch.float64), rule="multi_step")
    uniforms = torch.zeros(1, 3, dtype=torch.float64)
    good = replace(draws, proposals=[laws[0]])
    with pytest.raises(KernelError, match="rule is 'naive'"):
        walk_trees(laws, good, uniforms, rule="naive")  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="starts is"):
        walk_trees(laws, replace(good, starts=draws.roots), uniforms, rule="traversal")
