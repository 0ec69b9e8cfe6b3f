"""How trees grow by a level (paper, section 3.1): children drawn by the rows of an SSM.

How a node's children are drawn is told in children.py.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from specinfer.adjust import adjust, taken_as_they_are
from specinfer.draft.children import add_likeliest, draw_children, fitted, is_plain, likeliest
from specinfer.draft.draft import Draft


class Growth:
    """Draws children for an LLM of so many tokens."""

    def __init__(self, vocab: int, vocabulary: Tensor | None, *, replacement: bool) -> None:
        """Take the LLM's number of tokens; vocabulary [D] are those that the SSM's rows are over.

        Without one the rows are over all of the LLM's tokens.
        """
        self._vocab = vocab
        self._vocabulary = vocabulary
        self._ids: list[int] | None = None if vocabulary is None else vocabulary.tolist()
        self._replacement = replacement

    def grow(self, drafts: Sequence[Draft], rows: Sequence[Tensor]) -> None:
        """Draw the children of every frontier node, by its row of logits [F, V of the SSM]."""
        pairs = list(zip(drafts, rows, strict=True))
        plain = [pair for pair in pairs if is_plain(pair[0].request)]
        if plain:
            own = [row for _, row in plain]
            self._choose([draft for draft, _ in plain], torch.cat(own) if own[1:] else own[0])
        for draft, row in pairs:
            if not is_plain(draft.request):
                self._draw(draft, self._adjusted(draft, row))
            draft.advance()

    def _choose(self, drafts: list[Draft], rows: Tensor) -> None:
        """Add the likeliest children of greedy requests whose logits need no adjustment.

        Among the SSM's own tokens: bringing 8k logits to the LLM's 49k costs more than the choice.
        """
        nodes = [(draft, node) for draft in drafts for node in draft.frontier]
        widest = max(draft.width(node) for draft, node in nodes)
        own = rows if self._ids else rows[:, : self._vocab]
        for (draft, node), best in zip(nodes, likeliest(own, widest), strict=True):
            named = [(self._ids[token], share) for token, share in best] if self._ids else best
            add_likeliest(draft.tree, node, named[: draft.width(node)])

    def _adjusted(self, draft: Draft, rows: Tensor) -> Tensor:
        rows = fitted(rows, self._vocab, self._vocabulary)
        if taken_as_they_are(draft.request):
            return rows
        paths = [draft.tree.tokens_to(node) for node in draft.frontier]
        return adjust(rows, draft.request, paths)

    def _draw(self, draft: Draft, rows: Tensor) -> None:
        request, draw = draft.request, partial(draw_children, replacement=self._replacement)
        for node, row in zip(draft.frontier, rows, strict=True):
            draw(draft.tree, node, row, draft.width(node), request.params, request.choices)
