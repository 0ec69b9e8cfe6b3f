"""The token tree (paper, Definitions 3.1 and 3.2).

A tree is parallel lists in the order the nodes were added, so a parent always precedes its
children.  Node 0 is the root: the last token already emitted.  A node stands for one path of
tokens, so two drafters that propose the same path share the node and its share of the LLM's
work.  What must not be shared is the *draws*: verification gives every draw its own chance
(a multiset, engine exactness), so each node keeps the list of draws made beneath it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

ROOT = 0


class Draw(NamedTuple):  # a frozen dataclass takes three times as long to make, and trees are many
    """One proposal beneath a node.

    law is the [V] distribution the token was drawn from, in float32, warped exactly as it was
    sampled; None says that the token was chosen outright (a point mass).  `without` are the
    tokens drawn before it from the same law without replacement, and thus impossible here.
    """

    child: int
    law: Tensor | None
    drafter: int = 0  # position in the pool: who is credited
    without: tuple[int, ...] = ()
    key: int = 0  # what the drafter's record of acceptance is kept by

    def proposal(self) -> Tensor | None:
        """Return the law this very draw followed, [V], or None for a point mass."""
        if self.law is None or not self.without:
            return self.law
        rest = self.law.clone()
        rest[list(self.without)] = 0
        return rest / rest.sum()


@dataclass(slots=True)
class TokenTree:
    """Speculated continuations of one request."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    draws: list[list[Draw]] = field(default_factory=lambda: [[]])
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def rooted_at(cls, token: int) -> "TokenTree":
        return cls([token])

    def __len__(self) -> int:
        return len(self.tokens)

    def add(
        self,
        parent: int,
        token: int,
        law: Tensor | None = None,
        *,
        drafter: int = 0,
        without: tuple[int, ...] = (),
        key: int = 0,
    ) -> int:
        """Record a draw beneath parent and return its node, an old one where the path exists."""
        node = self._children.setdefault((parent, token), len(self.tokens))
        if node == len(self.tokens):
            self.tokens.append(token)
            self.parents.append(parent)
            self.draws.append([])
        self.draws[parent].append(Draw(node, law, drafter, without, key))
        return node

    def child(self, parent: int, token: int) -> int | None:
        """Return the node of token beneath parent, if it was drawn."""
        return self._children.get((parent, token))

    def follow(self, tokens: Iterable[int]) -> list[int]:
        """Return the nodes along tokens from the root's child down, as far as they were drawn."""
        nodes, node = [], ROOT
        for token in tokens:
            child = self.child(node, token)
            if child is None:
                break
            nodes.append(child)
            node = child
        return nodes

    def depths(self) -> list[int]:
        """Return every node's distance from the root."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    def path(self, node: int) -> Iterator[int]:
        """Yield node and then its ancestors up to, but not including, the root."""
        while node != ROOT:
            yield node
            node = self.parents[node]

    def tokens_to(self, node: int) -> list[int]:
        """Return the tokens from the root's child down to node."""
        return [self.tokens[n] for n in self.path(node)][::-1]

    def drafters(self) -> list[set[int]]:
        """Return who proposed each node; nobody the root."""
        proposers: list[set[int]] = [set() for _ in self.tokens]
        for draw in (draw for draws in self.draws for draw in draws):
            proposers[draw.child].add(draw.drafter)
        return proposers

    def forget_laws(self) -> None:
        """Let go of the draws' laws once they are verified; a row may keep all of its level's."""
        self.draws = [[draw._replace(law=None) for draw in draws] for draws in self.draws]

    @property
    def point_masses_only(self) -> bool:
        return all(draw.law is None for draws in self.draws for draw in draws)
