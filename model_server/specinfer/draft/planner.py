"""Which of its shapes an SSM is to draft: the one that promises the most tokens a millisecond.

Each level costs a pass of the SSM, each node a row of the LLM; what they are likely to gain is
learnt by rank.  Not to draft is a choice like any other, and then a little time is spent, now and
then, on seeing whether it still is the right one.
"""

import math
from collections.abc import Callable, Sequence

from specinfer.config import TreeShape
from specinfer.cost_model import CostModel
from specinfer.draft.beside import Beside
from specinfer.draft.ranks import Profile, Ranks
from specinfer.draft.shape import Rates, Shape, best_shapes
from specinfer.request import Request
from specinfer.token_tree import TokenTree

Family = Callable[[Rates], list[Shape]]  # the shapes to choose from; the last is the whole one
Passes = Callable[[Shape], Sequence[int]]  # the rows of each pass of an SSM that draws a shape

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # nodes of the profiled trees looked at
REPLAN = 32  # steps that a choice is kept for at most: making it takes a few milliseconds
REGROW = 8  # choices that a family of trees is kept for: making it takes some twenty
GAIN = 1.08  # what a shape must promise over none: the best of many noisy estimates flatters
BOTH = (True, False)
LOOKING = 0.01  # share of the time spent on drafts that are not expected to pay, by one request


class Planner:
    """Chooses one shape for a batch; without costs always the whole one."""

    def __init__(
        self,
        family: Family,
        profile: Profile,
        *,
        ssm: CostModel | None = None,
        llm: CostModel | None = None,
        passes: Passes = lambda shape: shape.above,
        first: CostModel | None = None,
    ) -> None:
        """Take the models' costs and the rows of the SSM's passes: all earlier levels' again.

        first is the cost of a draft's first pass, where the later ones find in the processor's
        caches what it had to fetch.
        """
        self.ssm = ssm
        self.first = first or ssm
        self.passes = passes
        self._llm = llm
        self._family = family
        self._ranks = {
            True: Ranks.starting(profile.greedy, profile.weight),
            False: Ranks.starting(profile.sampled, profile.weight),
        }
        self._whole = {greedy: family(ranks.rates)[-1] for greedy, ranks in self._ranks.items()}
        self._plans: dict[tuple[bool, bool, int], tuple[Shape | None, int]] = {}
        self._grown: dict[bool, tuple[list[Shape], int]] = {}
        self._credit = 0.0
        # By greedy, and by whether the other drafters had found something a step before: what
        # copies a text goes on copying it, and needs no SSM meanwhile.
        self._beside = {(greedy, found): Beside() for greedy in BOTH for found in BOTH}

    def whole(self, *, greedy: bool) -> Shape:
        """Return the shape that depends on nothing that was learnt."""
        return self._whole[greedy]

    def shapes(
        self,
        requests: Sequence[Request],
        behind: Callable[[Request], int],
        others: Callable[[Request], int] = lambda request: 0,
        *,
        resting: bool = False,
    ) -> list[Shape | None]:
        """Return the shape for each request; None where drafting is not expected to pay.

        resting: nobody is drafted for but those whose answers depend on it.

        An answer that is to repeat itself from a seed gets the same shape whatever was learnt.
        When nobody drafts, the one that is least behind, by tokens to catch up with, may be
        looked at.  others is how many tokens the other drafters found last.
        """
        batch = len(requests)
        greedy = [request.params.greedy for request in requests]
        shapes = [
            self.whole(greedy=own)
            if request.repeatable
            else None
            if resting
            else self.shape(batch, greedy=own, found=others(request) > 0)
            for request, own in zip(requests, greedy, strict=True)
        ]
        if requests and not resting and not any(shapes):
            missing = list(map(behind, requests))
            least = min(range(batch), key=missing.__getitem__)
            if self.may_look(batch, missing[least]):
                shapes[least] = self.whole(greedy=greedy[least]).upto(1)
        return shapes

    def shape(self, batch: int, *, greedy: bool, found: bool = False) -> Shape | None:
        """Return the shape for each of so many requests; None: better not to draft.

        found: the other drafters had tokens right in the last step, so they may again.
        """
        if self._llm is None:
            return self._whole[greedy]
        if not self._llm.knows_plain(batch):
            return None
        plan, uses = self._plans.get((greedy, found, batch), (None, 0))
        if uses % REPLAN == 0 or uses & (uses - 1) == 0:  # sooner at first: it is a guess
            plan = self.best(batch, greedy=greedy, found=found)
        self._plans[greedy, found, batch] = plan, uses + 1
        return plan

    def may_look(self, batch: int, rows: int) -> bool:
        """Tell whether time has been saved up for one request's draft that may not pay.

        rows are those its SSM would have to catch up with.  The share shrinks with the root of the
        requests: what is learnt holds for all of them, and a large batch seldom gains.
        """
        assert self._llm is not None and self.first is not None
        self._credit += LOOKING / math.sqrt(batch) * self._llm.cost(batch, batch)
        if self._credit < self.first.cost(1, rows):
            return False
        self._credit = 0.0
        return True

    def observe(
        self,
        tree: TokenTree,
        tokens: Sequence[int],
        *,
        greedy: bool,
        others: int = 0,
        found: bool = False,
    ) -> None:
        """Learn from the tokens that were emitted after this SSM's tree had been drafted.

        others is how many of them the other drafters had found as well; found, whether they had
        any in the step before.
        """
        self._ranks[greedy].observe(tree, tokens)
        own = len(tree.follow(tokens))
        stood = min(own, len(tokens) - 1)  # fewer where the tree was not verified as it was drawn
        self._beside[greedy, found].add(own, stood, others)

    def rates(self, *, greedy: bool) -> Rates:
        """Return the rate at which each rank's child is the one accepted."""
        return self._ranks[greedy].rates

    def best(self, batch: int, *, greedy: bool, found: bool = False) -> Shape | None:
        """Weigh the family anew for a batch; None: better not to draft."""
        assert self._llm is not None
        rates, beside = self._ranks[greedy].rates, self._beside[greedy, found]
        plain = GAIN * beside.emitted / self._llm.cost(batch, batch)
        shapes, uses = self._grown.get(greedy, ([], 0))
        if uses % REGROW == 0:
            shapes = self._family(rates)
        self._grown[greedy] = shapes, uses + 1
        best = max(shapes, key=lambda shape: self._speed(shape, batch, rates, beside))
        return best if self._speed(best, batch, rates, beside) > plain else None

    def _speed(self, shape: Shape, batch: int, rates: Rates, beside: Beside) -> float:
        """Return a request's expected tokens a millisecond."""
        assert self._llm is not None and self.ssm is not None and self.first is not None
        milliseconds = self._llm.cost(batch, batch * (1 + shape.nodes))
        for level, rows in enumerate(self.passes(shape)):
            ssm = self.ssm if level else self.first
            milliseconds += ssm.cost(batch, batch * max(1, rows))
        return beside.expected(shape.expected(rates)) / milliseconds


def cut_short(tree: TreeShape) -> Family:
    """Return the family of a fixed shape: itself and what is left of it at smaller depths."""
    whole = Shape.of(tree)
    shapes = [whole.upto(depth) for depth in range(1, whole.depth + 1)]
    return lambda rates: shapes


def of_any_size_or(tree: TreeShape) -> Family:
    """Return the best trees of all sizes up to a fixed one's, which is the whole one.

    For an SSM that draws any shape at no more than the price of its levels.
    """
    whole = Shape.of(tree)
    free = of_any_size(whole.nodes, whole.depth)
    return lambda rates: [*free(rates), whole]


def of_any_size(nodes: int, depth: int) -> Family:
    """Return the family of the best trees of all sizes and depths up to the given ones."""
    sizes = [size for size in SIZES if size < nodes] + [nodes]

    def family(rates: Rates) -> list[Shape]:
        best = best_shapes(rates, nodes, depth)
        chosen = [best[size, limit] for size in sizes for limit in range(1, depth + 1)]
        whole = best[nodes, depth]
        return [*dict.fromkeys(shape for shape in chosen if shape != whole), whole]

    return family
