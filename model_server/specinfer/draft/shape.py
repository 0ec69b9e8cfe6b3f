"""Which tree to draft: the shape, chosen before a token is drawn (paper, section 3.1; Sequoia).

A shape says how many children each node gets.  With p[k] the rate at which a node's k-th child is
the one accepted, a tree emits the sum over its nodes of the products of p along their paths; a
dynamic programme finds the best tree of every size and depth (arXiv 2402.12374).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate

from specinfer.config import TreeShape

Rates = tuple[float, ...]
Nested = tuple["Nested", ...]  # a node is its children


@dataclass(frozen=True)
class Shape:
    """Numbers of children, node by node, level by level, the root first."""

    children: tuple[int, ...]

    @classmethod
    def of(cls, tree: TreeShape) -> "Shape":
        """Return the full tree <k1, …, km>."""
        children, level = [], 1
        for width in tree.widths:
            children += [width] * level
            level *= width
        return cls((*children, *[0] * level))

    @classmethod
    def nested(cls, root: Nested) -> "Shape":
        children, level = [], [root]
        while level:
            children += [len(node) for node in level]
            level = [child for node in level for child in node]
        return cls(tuple(children))

    def __str__(self) -> str:
        return f"{self.nodes} nodes, depth {self.depth}, children {','.join(map(str, self.inner))}"

    @property
    def nodes(self) -> int:
        """Speculated nodes, the root excluded."""
        return len(self.children) - 1

    @property
    def depth(self) -> int:
        return len(self.levels) - 1

    @property
    def inner(self) -> tuple[int, ...]:
        """The numbers of children up to the last node that has any."""
        last = max((i for i, count in enumerate(self.children) if count), default=-1)
        return self.children[: last + 1]

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """Each node's first child; its others follow."""
        firsts, following = [], 1
        for count in self.children:
            firsts.append(following)
            following += count
        return tuple(firsts)

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Each node's parent; the root's is -1."""
        return (-1, *(node for node, count in enumerate(self.children) for _ in range(count)))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Nodes at each depth, the root's own level first."""
        levels, start = [1], 0
        while wide := sum(self.children[start : start + levels[-1]]):
            start += levels[-1]
            levels.append(wide)
        return tuple(levels)

    @cached_property
    def frontiers(self) -> tuple[int, ...]:
        """Nodes that have children, at each depth that has any."""
        inner, start = [], 0
        for wide in self.levels[:-1]:
            inner.append(sum(count > 0 for count in self.children[start : start + wide]))
            start += wide
        return tuple(inner)

    @cached_property
    def above(self) -> tuple[int, ...]:
        """Nodes above each depth below the root's own, the root itself not counted."""
        return tuple(accumulate(self.levels[1:-1], initial=0)) if self.depth else ()

    def upto(self, depth: int) -> "Shape":
        """Return the shape cut off below a depth."""
        inner = sum(self.levels[:depth])
        return Shape((*self.children[:inner], *[0] * self.levels[depth]))

    def expected(self, rates: Rates) -> float:
        """Return the tokens that a step emits on average, the LLM's own included."""
        stands = [1.0] * len(self.children)
        for node, (first, count) in enumerate(zip(self.firsts, self.children, strict=True)):
            for rank in range(count):
                stands[first + rank] = stands[node] * (rates[rank] if rank < len(rates) else 0.0)
        return sum(stands)


def best_shapes(rates: Rates, nodes: int, depth: int) -> dict[tuple[int, int], Shape]:
    """Return the shape that emits most, for each number of nodes and limit of depth from 1 up."""

    @cache
    def below(left: int, limit: int, rank: int) -> tuple[float, Nested]:
        """Spend up to so many nodes on the children of one node from a rank on."""
        best: tuple[float, Nested] = (0.0, ())
        if left == 0 or limit == 0 or rank == len(rates):
            return best
        for own in range(left):  # what this child's own subtree gets
            inside, child = below(own, limit - 1, 0)
            beside, others = below(left - 1 - own, limit, rank + 1)
            gain = rates[rank] * (1 + inside) + beside
            if gain > best[0]:
                best = gain, (child, *others)
        return best

    return {
        (size, limit): Shape.nested(below(size, limit, 0)[1])
        for size in range(1, nodes + 1)
        for limit in range(1, depth + 1)
    }


def profiled(rates: Sequence[float], nodes: int, depth: int) -> Shape:
    """Return the best shape of at most so many nodes and levels."""
    return best_shapes(tuple(rates), nodes, depth)[nodes, depth]
