"""Sampling kernels: checked against the definition, then timed beside torch."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from gpu_kernels import verdict
from gpu_rig import Clock, Rig, Until, attempt, copy_bandwidth, lacking
from torch import Tensor

from specinfer.config import TreeShape
from specinfer_kernels import Draws, Rule, Warp, draw_tokens, walk_trees, warp_rows
from specinfer_kernels.sampling.arguments import RULES
from specinfer_kernels.sampling.testing import Drawn, draws_of

TOP_P = 0.9
FEW = 40  # likeliest tokens of the laws that are walked by
ROUNDING = 1e-6  # of a distribution function's value


@dataclass(frozen=True, slots=True)
class Forest:
    """Equal trees as a drafter grows them, with other tokens in each."""

    laws: Tensor  # of the LLM, [trees * nodes, V]
    draws: Draws
    uniforms: Tensor

    @classmethod
    def grown(cls, rig: Rig, trees: int, vocab: int, rule: Rule) -> "Forest":
        """Draw every tree of the rig's shape from laws near the LLM's."""
        generator = torch.Generator(rig.device).manual_seed(vocab + trees)
        nodes = list(spread(rig.tree))
        count = len(nodes) + 1
        rows = torch.randn(trees * count, vocab, generator=generator, device=rig.device) * 3
        near = rows + torch.randn(rows.shape, generator=generator, device=rig.device) / 2
        warp = settings(len(rows), rig.device, top_k=FEW)
        proposals = warp_rows(near, warp, backend=rig.backend)
        shape = len(rows), max(width for _, width, _ in nodes)
        numbers = random_numbers(shape, generator, rig.device)
        tokens = draw_tokens(proposals, numbers, replacement=False, backend=rig.backend).tolist()
        drawn = [
            [
                Drawn(parent, child, tokens[root + parent][turn], root + parent, gone)
                for child, (parent, _, turn) in enumerate(nodes, 1)
                for gone in [tuple(tokens[root + parent][:turn])]
            ]
            for root in range(0, len(rows), count)
        ]
        roots = list(range(0, len(rows), count))
        return cls(
            laws=warp_rows(rows, warp, backend=rig.backend),
            draws=draws_of(drawn, roots, list(proposals), rule, rig.device),
            uniforms=random_numbers((trees, len(nodes) + 2), generator, rig.device),
        )


def spread(shape: TreeShape) -> Iterator[tuple[int, int, int]]:
    """Yield each node's parent, how many children that has, and which of them the node is."""
    level, count = [0], 0
    for width in shape.widths:
        level, above = [], level
        for parent, turn in itertools.product(above, range(width)):
            count += 1
            level.append(count)
            yield parent, width, turn


def random_numbers(shape: tuple[int, int], generator: torch.Generator, device: str) -> Tensor:
    return torch.rand(shape, generator=generator, device=device, dtype=torch.float64)


def settings(rows: int, device: str, *, top_k: int = 0, top_p: float = 1.0) -> Warp:
    ones = torch.ones(rows, device=device)
    return Warp(ones, torch.full_like(ones, top_k, dtype=torch.int32), ones * top_p, ones * 0)


def check_sampling(rig: Rig, until: Until) -> int:
    """Compare with the definition and return how many cases err too much or end in an error."""
    failures = 0
    for begun, vocab in enumerate(rig.vocabularies):
        if until.leaves_out("sampling checks", begun, len(rig.vocabularies)):
            break
        for check in (check_warp, check_draw, check_walk):
            what = f"{check.__name__.removeprefix('check_')} V={vocab}"
            failures += attempt(what, partial(check, rig, vocab, what))
    return failures


def check_warp(rig: Rig, vocab: int, what: str) -> int:
    """One token on top-p's edge may fall either way, by rounding."""
    generator = torch.Generator(rig.device).manual_seed(vocab)
    rows = torch.randn(16, vocab, generator=generator, device=rig.device) * 3
    kind = torch.arange(16, device=rig.device)
    warp = Warp(
        temperature=0.5 + kind / 16,
        top_k=(kind % 2 * FEW).int(),
        top_p=1 - kind // 2 % 2 * (1 - TOP_P),
        min_p=kind // 4 % 2 * 0.01,
    )
    laws = warp_rows(rows, warp, backend=rig.backend)
    exact = warp_rows(rows.double(), warp, backend="reference")
    least = exact.where(exact > 0, 1).amin(1)
    errors = (laws - exact).abs().sum(1) / (2 * least + 1e-5)
    return verdict(f"{what}: in tokens on the edge", float(errors.max()), 1.0)


def check_draw(rig: Rig, vocab: int, what: str) -> int:
    """Where the distribution function passes a number, its values on either side enclose it."""
    generator = torch.Generator(rig.device).manual_seed(vocab)
    laws = (torch.randn(8, vocab, generator=generator, device=rig.device) * 3).softmax(1)
    numbers = random_numbers((8, 64), generator, rig.device)
    tokens = draw_tokens(laws, numbers, backend=rig.backend)
    own = laws.double().gather(1, tokens)
    upper = (laws.double().cumsum(1) / laws.double().sum(1, keepdim=True)).gather(1, tokens)
    outside = torch.maximum(numbers - upper, upper - own - numbers).max()
    return verdict(what, float(outside), ROUNDING)


def check_walk(rig: Rig, vocab: int, what: str) -> int:
    failures = 0
    for rule in RULES:
        forest = Forest.grown(rig, 8, vocab, rule)
        given = forest.laws, forest.draws, forest.uniforms
        ours, exact = (
            walk_trees(*given, rule=rule, backend=backend) for backend in (rig.backend, "reference")
        )
        differ = int((ours != exact).any(1).sum())
        failures += verdict(f"{what} {rule}: verdicts that differ", differ, 0)
    return failures


def torch_warp(rows: Tensor, top_p: float) -> Tensor:
    """Top-p as torch's operators do it."""
    laws, ids = rows.softmax(1).sort(dim=1, descending=True)
    laws = laws.where(laws.cumsum(1) - laws < top_p, 0.0)
    laws /= laws.sum(1, keepdim=True)
    return torch.empty_like(laws).scatter_(1, ids, laws)


def measure_sampling(rig: Rig, until: Until) -> int:
    """Print a line a case until all are done or time is up; return how many end in an error."""
    clock = Clock.of(rig)
    bandwidth = copy_bandwidth(rig, clock)
    nodes = rig.tree.nodes
    print(f"\nsampling, trees of {nodes} nodes; warp: top-p {TOP_P}; draw: one token a row")
    print("       V    B    warp us  of floor torch/ours    draw us  of floor torch/ours", end="")
    print("".join(f" {rule + ' us':>14}" for rule in RULES))
    cases = list(itertools.product(rig.vocabularies, rig.batches))
    failures = 0
    for begun, (vocab, trees) in enumerate(cases):
        if until.leaves_out("sampling", begun, len(cases)):
            break

        def line(vocab: int = vocab, trees: int = trees) -> None:
            print(f"{vocab:8} {trees:4} {_row(rig, clock, vocab, trees, bandwidth)}", flush=True)

        failures += attempt(f"sampling V={vocab} B={trees}", line)
    return failures


def _row(rig: Rig, clock: Clock, vocab: int, trees: int, bandwidth: float) -> str:
    generator = torch.Generator(rig.device).manual_seed(0)
    count = trees * (rig.tree.nodes + 1)
    rows = torch.randn(count, vocab, generator=generator, device=rig.device) * 3
    warp, laws = settings(count, rig.device, top_p=TOP_P), rows.softmax(1)
    numbers = random_numbers((count, 1), generator, rig.device)
    warping = clock.least(lambda: warp_rows(rows, warp, backend=rig.backend))
    drawing = clock.least(lambda: draw_tokens(laws, numbers, backend=rig.backend))
    floor = 4 * count * vocab / bandwidth
    pairs = (
        (warping, 2 * floor, _torch(clock, "sort", lambda: torch_warp(rows, TOP_P))),
        (drawing, floor, _torch(clock, "multinomial", lambda: torch.multinomial(laws, 1))),
    )
    cells = [
        f"{ours * 1e6:10.0f} {least / ours:9.2f} "
        + ("         -" if theirs is None else f"{theirs / ours:10.2f}")
        for ours, least, theirs in pairs
    ]
    return " ".join([*cells, *(_walk(rig, clock, trees, vocab, rule) for rule in RULES)])


def _walk(rig: Rig, clock: Clock, trees: int, vocab: int, rule: Rule) -> str:
    forest = Forest.grown(rig, trees, vocab, rule)
    given = forest.laws, forest.draws, forest.uniforms
    seconds = clock.least(lambda: walk_trees(*given, rule=rule, backend=rig.backend))
    return f"{seconds * 1e6:14.0f}"


def _torch(clock: Clock, what: str, call: Callable[[], Tensor]) -> float | None:
    try:
        return clock.least(call)
    except Exception as error:
        lacking(what, error)
        return None
