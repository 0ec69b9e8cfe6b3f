"""The draws of several trees as columns, in the order in which verification meets them (4.3).

Kernels walk along numbers where the host's walks call themselves: each draw tells which is tried
next where it is rejected, which where it is accepted, and which had led to its parent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specinfer.token_tree import ROOT, TokenTree
from specinfer_kernels import Rule

NONE = -1


@dataclass(slots=True)
class Columns:
    """What specinfer_kernels.Draws is made of; numbers of draws count through all trees."""

    walk: Rule
    starts: list[int] = field(default_factory=lambda: [0])
    roots: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    proposal: list[int] = field(default_factory=list)
    without: list[tuple[int, ...]] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    following: list[int] = field(default_factory=list)
    above: list[int] = field(default_factory=list)
    proposals: list[Tensor] = field(default_factory=list)
    _laws: dict[int, int] = field(default_factory=dict)  # number of a law, by its object's identity

    @classmethod
    def of(cls, trees: Sequence[TokenTree], walk: Rule) -> "Columns":
        """Lay out trees whose nodes' rows follow each other."""
        columns, row = cls(walk), 0
        for tree in trees:
            columns._beneath(tree, ROOT, NONE, {})
            columns.starts.append(len(columns.parents))
            columns.roots.append(row)
            row += len(tree)
        return columns

    def arrays(self) -> dict[str, NDArray[np.int32]]:
        """Return all columns but the proposals."""
        names = (
            "starts",
            "roots",
            "parents",
            "children",
            "tokens",
            "proposal",
            "below",
            "following",
            "above",
        )
        arrays = {name: np.array(getattr(self, name), dtype=np.int32) for name in names}
        widest = max([1, *map(len, self.without)])
        without = np.full((len(self.without), widest), NONE, dtype=np.int32)
        for line, tokens in zip(without, self.without, strict=True):
            line[: len(tokens)] = tokens
        return arrays | {"without": without}

    def _beneath(self, tree: TokenTree, node: int, above: int, known: dict[int, int]) -> int:
        """Lay out the draws beneath a node, depth first; return the first one's number.

        A token drawn twice is one node: by the traversal rule its second draw comes as a leaf.
        """
        first = last = NONE
        for draw in tree.draws[node]:
            number = len(self.parents)
            if last == NONE:
                first = number
            else:
                self.following[last] = number
            self.parents.append(node)
            self.children.append(draw.child)
            self.tokens.append(tree.tokens[draw.child])
            self.proposal.append(self._numbered(draw.law))
            self.without.append(draw.without)
            self.following.append(NONE)
            self.above.append(above)
            self.below.append(NONE)
            if draw.child not in known:
                known[draw.child] = self._beneath(tree, draw.child, number, known)
                self.below[number] = known[draw.child]
            elif self.walk == "multi_step":
                self.below[number] = known[draw.child]
            last = number
        return first

    def _numbered(self, law: Tensor | None) -> int:
        if law is None:
            return NONE
        number = self._laws.setdefault(id(law), len(self.proposals))
        if number == len(self.proposals):
            self.proposals.append(law)
        return number
