"""The definition of warping, drawing and verifying, in torch and in the type of what is given."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer_kernels.sampling.arguments import COLDEST, Draws, Rule, Warp

Verdict = tuple[int, int, int]  # node, token, uniforms used
NONE = -1


def warp_rows(logits: Tensor, warp: Warp) -> Tensor:
    """Do what the package's warp_rows says."""
    rows = logits.masked_fill(~_top_k(logits, warp.top_k[:, None]), -torch.inf)
    heat = warp.temperature[:, None].to(rows.dtype).clamp(min=COLDEST)
    laws = ((rows - rows.amax(1, keepdim=True)) / heat).softmax(1)
    mass = warp.top_p[:, None].to(laws.dtype).clamp(min=torch.finfo(torch.float32).tiny)
    laws = _normalised(laws, _top_p(laws, mass))
    least = warp.min_p[:, None] * laws.amax(1, keepdim=True)
    return _normalised(laws, laws >= least)


def _top_k(rows: Tensor, k: Tensor) -> Tensor:
    """Tell which entries are among their row's k largest; 0: all."""
    ids = rows.sort(dim=1, descending=True, stable=True).indices
    rank = torch.empty_like(ids).scatter_(1, ids, torch.arange(ids.shape[1]).to(ids).expand_as(ids))
    return (rank < k) | (k == 0)


def _top_p(laws: Tensor, p: Tensor) -> Tensor:
    """Tell which entries are among the fewest likeliest whose mass reaches p."""
    ordered, ids = laws.sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(1) - ordered
    return torch.empty_like(laws, dtype=torch.bool).scatter_(1, ids, before < p) | (p >= 1)


def _normalised(laws: Tensor, kept: Tensor) -> Tensor:
    laws = laws.where(kept, 0.0)
    return laws / laws.sum(1, keepdim=True)


def draw_tokens(laws: Tensor, uniforms: Tensor, replacement: bool) -> Tensor:
    """Do what the package's draw_tokens says."""
    rest = laws if replacement else laws.clone()
    drawn = []
    for column in uniforms.unbind(1):
        tokens = _inverted(rest, column)
        drawn.append(tokens)
        if not replacement:  # where nothing is left, there is nothing to strike out either
            rest.scatter_(1, tokens.clamp(min=0)[:, None], 0.0)
    return torch.stack(drawn, 1) if drawn else laws.new_empty(len(laws), 0, dtype=torch.int64)


def _inverted(laws: Tensor, uniforms: Tensor) -> Tensor:
    """Return where distribution functions [N, V] pass the numbers [N]."""
    rising = laws.double().cumsum(1)
    possible = laws > 0
    beyond = possible & (rising > rising[:, -1:] * uniforms[:, None])
    places = torch.arange(laws.shape[1], device=laws.device)
    last = torch.where(possible, places, NONE).amax(1)  # rounding may leave none beyond
    return torch.where(beyond, places, last[:, None].expand_as(beyond)).amin(1)


@dataclass(frozen=True, slots=True)
class _Host:
    """The draws of all trees in host memory."""

    tokens: list[int]
    children: list[int]
    below: list[int]
    following: list[int]
    proposal: list[int]
    without: list[list[int]]
    proposals: Sequence[Tensor]

    @classmethod
    def of(cls, draws: Draws) -> "_Host":
        return cls(
            tokens=draws.tokens.tolist(),
            children=draws.children.tolist(),
            below=draws.below.tolist(),
            following=draws.following.tolist(),
            proposal=draws.proposal.tolist(),
            without=draws.without.tolist(),
            proposals=draws.proposals,
        )


@dataclass(slots=True)
class _Tree:
    """One tree; -1 stands for the draw that led to its root."""

    draws: _Host
    laws: Tensor  # [T, V], by node
    first: int  # of the draws beneath the root
    uniforms: list[float]
    used: int = 0

    def law(self, draw: int) -> Tensor:
        """Return the LLM's law after the child of a draw, [V]."""
        return self.laws[self.draws.children[draw] if draw >= 0 else 0]

    def proposed(self, draw: int) -> Tensor | None:
        """Return the law that a draw followed, [V]; None for one chosen outright."""
        if self.draws.proposal[draw] < 0:
            return None
        law = self.draws.proposals[self.draws.proposal[draw]]
        gone = [token for token in self.draws.without[draw] if token >= 0]
        if not gone:
            return law
        rest = law.clone()
        rest[gone] = 0
        return rest / rest.sum()

    def chance(self, law: Tensor, draw: int) -> float:
        """Return how much likelier than its proposal the LLM, by law, finds what was drawn."""
        token, proposal = self.draws.tokens[draw], self.proposed(draw)
        return float(law[token] if proposal is None else law[token] / proposal[token])

    def owed(self, law: Tensor, weight: float, draw: int) -> tuple[Tensor, float]:
        """Return the law and the weight that remain once a draw has been rejected."""
        rest, proposal = law * weight, self.proposed(draw)
        if proposal is None:
            rest[self.draws.tokens[draw]] = 0
        else:
            rest = (rest - proposal).clamp(min=0)
        total = float(rest.sum())
        if total <= 0:  # nothing owed but rounding
            return law, weight if weight == 1 else 0.0
        return rest / total, total / (total + (1 - weight))

    def accepts(self, probability: float) -> bool:
        return self._uniform() < probability

    def end(self, draw: int, law: Tensor) -> Verdict:
        """Stop at the child of a draw, with one more token from a law."""
        uniform = torch.tensor([[self._uniform()]], dtype=torch.float64, device=law.device)
        token = int(draw_tokens(law[None], uniform, replacement=True))
        return self.draws.children[draw] if draw >= 0 else 0, token, self.used

    def _uniform(self) -> float:
        self.used += 1
        return self.uniforms[self.used - 1]


def walk_trees(laws: Tensor, draws: Draws, uniforms: Tensor, rule: Rule) -> Tensor:
    """Do what the package's walk_trees says, tree by tree."""
    starts, roots, host = draws.starts.tolist(), draws.roots.tolist(), _Host.of(draws)
    verdicts = []
    for number, numbers in enumerate(uniforms.tolist()):
        first = starts[number] if starts[number] < starts[number + 1] else NONE
        tree = _Tree(host, laws[roots[number] :], first, numbers)
        verdicts.append(_multi_step(tree) if rule == "multi_step" else _traversal(tree))
    return torch.tensor(verdicts, dtype=torch.int64, device=laws.device).view(-1, 3)


def _multi_step(tree: _Tree) -> Verdict:
    """Go down while a draw is accepted (paper, Algorithm 2: VerifyStochastic)."""
    led, draw, law = NONE, tree.first, tree.law(NONE)
    while draw >= 0:
        if tree.accepts(tree.chance(law, draw)):
            led, draw, law = draw, tree.draws.below[draw], tree.law(draw)
        else:
            law, _ = tree.owed(law, 1.0, draw)
            draw = tree.draws.following[draw]
    return tree.end(led, law)


def _traversal(tree: _Tree) -> Verdict:
    """Keep the first path that deserves it, from its leaf up (arXiv 2505.12398)."""
    verdict = _visit(tree, NONE, tree.first, 1.0)
    assert verdict is not None, "the root is certain"
    return verdict


def _visit(tree: _Tree, led: int, draw: int, weight: float) -> Verdict | None:
    """Try the paths through the child of `led`, whose own first draw is `draw`."""
    law = tree.law(led)
    while draw >= 0:
        chance = min(1.0, weight * tree.chance(law, draw))
        found = _visit(tree, draw, tree.draws.below[draw], chance)
        if found is not None:
            return found
        law, weight = tree.owed(law, weight, draw)
        draw = tree.draws.following[draw]
    return tree.end(led, law) if tree.accepts(weight) else None
