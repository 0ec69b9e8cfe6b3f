"""Batches of drawn trees, for tests and benchmarks."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from specinfer_kernels.sampling.arguments import Draws, Rule

NONE = -1


class Drawn(NamedTuple):
    """One draw of a tree: node `child` beneath node `parent`."""

    parent: int
    child: int
    token: int
    proposal: int = NONE  # chosen outright
    without: tuple[int, ...] = ()


@dataclass(slots=True)
class _Linked:
    """Draws in the order verification meets them, and how they hang together."""

    rule: Rule
    drawn: list[Drawn] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    following: list[int] = field(default_factory=list)
    above: list[int] = field(default_factory=list)

    def take(self, tree: Sequence[Drawn]) -> None:
        """Add the draws of one more tree, given in the order they were made beneath each node."""
        beneath = defaultdict[int, list[Drawn]](list)
        for drawn in tree:
            beneath[drawn.parent].append(drawn)
        self._visit(beneath, 0, NONE, {})

    def _visit(
        self, beneath: dict[int, list[Drawn]], node: int, led: int, seen: dict[int, int]
    ) -> int:
        """Add what was drawn beneath a node; return its first draw."""
        first = previous = NONE
        for drawn in beneath.get(node, ()):
            place = len(self.drawn)
            self._add(drawn, led)
            if previous >= 0:
                self.following[previous] = place
            first, previous = place if first < 0 else first, place
            if drawn.child not in seen:
                seen[drawn.child] = self._visit(beneath, drawn.child, place, seen)
                self.below[place] = seen[drawn.child]
            elif self.rule == "multi_step":
                self.below[place] = seen[drawn.child]
        return first

    def _add(self, drawn: Drawn, led: int) -> None:
        self.drawn.append(drawn)
        self.below.append(NONE)
        self.following.append(NONE)
        self.above.append(led)


def draws_of(
    trees: Sequence[Sequence[Drawn]],
    roots: Sequence[int],
    proposals: Sequence[Tensor],
    rule: Rule,
    device: str = "cpu",
) -> Draws:
    """Return the draws of these trees; tree b's laws begin in row roots[b]."""
    linked, starts = _Linked(rule), [0]
    for tree in trees:
        linked.take(tree)
        starts.append(len(linked.drawn))
    wide = max((len(drawn.without) for drawn in linked.drawn), default=0)
    gone = [[*d.without, *[NONE] * (wide - len(d.without))] for d in linked.drawn]

    def tensor(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    return Draws(
        starts=tensor(starts),
        roots=tensor(roots),
        parents=tensor([drawn.parent for drawn in linked.drawn]),
        children=tensor([drawn.child for drawn in linked.drawn]),
        tokens=tensor([drawn.token for drawn in linked.drawn]),
        proposal=tensor([drawn.proposal for drawn in linked.drawn]),
        without=tensor(gone).view(len(gone), wide),
        below=tensor(linked.below),
        following=tensor(linked.following),
        above=tensor(linked.above),
        proposals=proposals,
    )
