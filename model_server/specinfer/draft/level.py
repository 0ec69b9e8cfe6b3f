"""A level of several requests' trees drawn where the SSM's rows are (paper, section 3.1).

One transfer brings all children, greedy and sampled; each law stays on the device, for
verification, as its row of the level's.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specinfer.draft.children import Ranked, add_drawn, ranked
from specinfer.draft.draft import Draft
from specinfer.together import foreseen, warp_columns, warp_of
from specinfer.transfer import send_arrays
from specinfer_kernels import draw_tokens, warp_rows


class Pending(NamedTuple):
    """Children being chosen, and how to add them once they are known."""

    found: Tensor  # float64, which holds a token's number exactly
    add: Callable[[list[list[float]]], None]


def choose(rows: Tensor, width: int, add: Callable[[list[Ranked]], None]) -> Pending:
    """Rank the tokens of logits [F, V]; add gets each row's width likeliest and their shares."""
    best, shares = ranked(rows, width)
    count = best.shape[1]

    def split(found: list[list[float]]) -> None:
        tokens = [[int(token) for token in line[:count]] for line in found]
        pairs = zip(tokens, found, strict=True)
        add([list(zip(ids, line[count:], strict=True)) for ids, line in pairs])

    return Pending(torch.cat([best.double(), shares.double()], 1), split)


def draw(drafts: Sequence[Draft], rows: Tensor, *, replacement: bool) -> Pending:
    """Draw the children of every frontier node by its row of logits [F, V], drafts in order.

    Each node uses as many of its request's random numbers as it is wide, as draw_children does.
    """
    nodes = [(draft, node) for draft in drafts for node in draft.frontier]
    widths = [draft.width(node) for draft, node in nodes]
    uniforms = np.zeros((len(nodes), max(widths)))
    for line, (draft, _), width in zip(uniforms, nodes, widths, strict=True):
        choices = foreseen(draft.request)
        assert choices is not None
        line[:width] = choices.ahead(width)
        choices.skip(width)
    params = [draft.request.params for draft in drafts]
    columns = warp_columns(params, [len(draft.frontier) for draft in drafts], rows.shape[1])
    sent = send_arrays({"uniforms": uniforms, **columns}, rows.device)
    laws = warp_rows(rows.contiguous(), warp_of(sent))  # an SSM may have more padding than its LLM
    tokens = draw_tokens(laws, sent["uniforms"], replacement=replacement)

    def add(found: list[list[float]]) -> None:
        for (draft, node), width, law, line in zip(nodes, widths, laws, found, strict=True):
            drawn = map(int, line[:width])
            add_drawn(draft.tree, node, law, drawn, replacement=replacement)

    return Pending(tokens.double(), add)
