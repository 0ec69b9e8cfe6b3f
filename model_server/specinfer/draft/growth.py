"""How trees grow by a level (paper, section 3.1): children drawn by the rows of an SSM.

How a node's children are drawn is told in children.py, how those of a batch on a GPU in level.py.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from specinfer.adjust import adjust, taken_as_they_are
from specinfer.draft.children import (
    Ranked,
    add_likeliest,
    draw_children,
    fitted,
    is_plain,
    likeliest,
)
from specinfer.draft.draft import Draft
from specinfer.draft.level import choose, draw
from specinfer.together import foreseen
from specinfer.transfer import bring
from specinfer_kernels import samples_together

Pair = tuple[Draft, Tensor]  # a draft, and its frontier's logits [F, V of the SSM]


class Growth:
    """Draws children for an LLM of so many tokens."""

    def __init__(
        self, vocab: int, vocabulary: Tensor | None, device: torch.device, *, replacement: bool
    ) -> None:
        """Take the LLM's number of tokens; the SSM's rows, on a device, are over vocabulary [D].

        Without one they are over all of the LLM's tokens.
        """
        self._vocab = vocab
        self._vocabulary = vocabulary
        self._ids: list[int] | None = None if vocabulary is None else vocabulary.tolist()
        self._replacement = replacement
        self._together = samples_together(device)

    def grow(self, drafts: Sequence[Draft], rows: Sequence[Tensor]) -> None:
        """Draw the children of every frontier node, by its row of logits [F, V of the SSM]."""
        pairs = list(zip(drafts, rows, strict=True))
        if self._together:
            self._grow_together(pairs)
        else:
            self._grow_one_by_one(pairs)
        for draft in drafts:
            draft.advance()

    def _grow_one_by_one(self, pairs: list[Pair]) -> None:
        plain = [pair for pair in pairs if is_plain(pair[0].request)]
        if plain:
            self._add_own(plain, likeliest(self._own(plain), _widest(plain)))
        self._draw_each([pair for pair in pairs if not is_plain(pair[0].request)])

    def _grow_together(self, pairs: list[Pair]) -> None:
        """Ask for the level's children before any is waited for; what kernels cannot comes last."""
        kinds: dict[str, list[Pair]] = {}
        for pair in pairs:
            kinds.setdefault(_kind(pair[0]), []).append(pair)
        pending = []
        if plain := kinds.get("plain"):
            add: Callable[[list[Ranked]], None] = partial(self._add_own, plain)
            pending.append(choose(self._own(plain), _widest(plain), add))
        if greedy := kinds.get("greedy"):
            add = partial(_add, greedy)
            pending.append(choose(self._adjusted(greedy), _widest(greedy), add))
        if drawn := kinds.get("drawn"):
            drafts = [draft for draft, _ in drawn]
            pending.append(draw(drafts, self._adjusted(drawn), replacement=self._replacement))
        for one, found in zip(pending, bring([one.found for one in pending]), strict=True):
            one.add(found)
        self._draw_each(kinds.get("alone", []))

    def _own(self, pairs: list[Pair]) -> Tensor:
        """Return rows over the SSM's own tokens, enough for greedy requests' logits as they are.

        Bringing 8k logits to the LLM's 49k costs more than the choice among them.
        """
        rows = _joined(pairs)
        return rows if self._ids else rows[:, : self._vocab]

    def _add_own(self, pairs: list[Pair], best: list[Ranked]) -> None:
        """Add the likeliest of the SSM's own tokens."""
        if ids := self._ids:
            best = [[(ids[token], share) for token, share in ranked] for ranked in best]
        _add(pairs, best)

    def _adjusted(self, pairs: list[Pair]) -> Tensor:
        """Return rows over the LLM's tokens, as each request wants them."""
        rows = fitted(_joined(pairs), self._vocab, self._vocabulary)
        if all(taken_as_they_are(draft.request) for draft, _ in pairs):
            return rows
        parts = torch.split(rows, [len(own) for _, own in pairs])
        adjusted = [_by_path(draft, part) for (draft, _), part in zip(pairs, parts, strict=True)]
        return torch.cat(adjusted)

    def _draw_each(self, pairs: list[Pair]) -> None:
        for draft, row in pairs:
            request = draft.request
            rows = _by_path(draft, fitted(row, self._vocab, self._vocabulary))
            for node, own in zip(draft.frontier, rows, strict=True):
                draw_children(
                    draft.tree,
                    node,
                    own,
                    draft.width(node),
                    request.params,
                    request.choices,
                    replacement=self._replacement,
                )


def _kind(draft: Draft) -> str:
    """Tell how a draft's children are to be asked for."""
    if draft.request.params.greedy:
        return "plain" if is_plain(draft.request) else "greedy"
    return "drawn" if foreseen(draft.request) else "alone"


def _joined(pairs: list[Pair]) -> Tensor:
    return torch.cat([rows for _, rows in pairs]) if pairs[1:] else pairs[0][1]


def _widest(pairs: list[Pair]) -> int:
    return max(draft.width(node) for draft, _ in pairs for node in draft.frontier)


def _add(pairs: list[Pair], best: list[Ranked]) -> None:
    nodes = [(draft, node) for draft, _ in pairs for node in draft.frontier]
    for (draft, node), ranked in zip(nodes, best, strict=True):
        add_likeliest(draft.tree, node, ranked[: draft.width(node)])


def _by_path(draft: Draft, rows: Tensor) -> Tensor:
    """Return a draft's rows adjusted, each by its own path."""
    if taken_as_they_are(draft.request):
        return rows
    return adjust(rows, draft.request, [draft.tree.tokens_to(node) for node in draft.frontier])
