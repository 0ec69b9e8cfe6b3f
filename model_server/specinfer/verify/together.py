"""All verdicts of a step computed where the rows are, and brought to the host by one transfer.

The verdicts are those of the walks on the host (paper, section 4.3; greedy.py, naive.py,
multi_step.py, traversal.py), by the same random numbers, so that a seeded answer is the same.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specinfer.adjust import adjust, taken_as_they_are
from specinfer.choices import SeededChoices
from specinfer.config import Verifier
from specinfer.request import Request
from specinfer.together import foreseen, warp_columns, warp_of
from specinfer.token_tree import TokenTree
from specinfer.transfer import bring, send_arrays
from specinfer.verify.columns import Columns
from specinfer.verify.greedy import follow
from specinfer.verify.rule import rule_of
from specinfer_kernels import Draws, Rule, draw_tokens, walk_trees, warp_rows

Verdict = tuple[list[int], int]

# Numbers in laws at a time, 512 MB: 32 trees of 20 nodes over 152k tokens are whole, and what is
# beyond comes in its turn rather than take the room of a small card's keys and values.
MOST = 1 << 27


class Case(NamedTuple):
    """A tree to verify for a request."""

    request: Request
    tree: TokenTree


class _Own(NamedTuple):
    """A case with its own rows of logits [T, V], ready to be sampled from."""

    place: int  # among the cases
    start: int | None  # of its rows among all; None: they have been adjusted
    rows: Tensor
    tree: TokenTree
    request: Request
    choices: SeededChoices | None

    @property
    def foreseen(self) -> SeededChoices:
        assert self.choices is not None
        return self.choices


class _Pending(NamedTuple):
    """Numbers being computed, and what they say of each case, by its place."""

    found: Tensor  # int64
    read: Callable[[list[list[int]]], Iterator[tuple[int, Verdict]]]


def verify_together(
    cases: Sequence[Case], rows: Tensor, verifier: Verifier
) -> list[Verdict | None]:
    """Decide on each tree; None where it has to be done alone, by a grammar or typical-p.

    rows [N, V] are the LLM's logits after the nodes of all trees in order, float32.
    """
    groups: dict[str, list[_Own]] = defaultdict(list)
    start = 0
    for place, (request, tree) in enumerate(cases):
        end, choices = start + len(tree), foreseen(request)
        if request.constraint is None and (choices is not None or request.params.greedy):
            rule = "greedy" if choices is None else rule_of(tree, verifier)
            groups[rule].append(_own(place, cases[place], start, rows[start:end], choices))
        start = end
    pending = [
        _launched(rule, group, rows)
        for rule, owns in groups.items()
        for group in _within_memory(owns, rows.shape[1])
    ]
    verdicts: list[Verdict | None] = [None] * len(cases)
    for one, found in zip(pending, bring([one.found for one in pending]), strict=True):
        for place, verdict in one.read(found):
            verdicts[place] = verdict
    return verdicts


def _own(place: int, case: Case, start: int, rows: Tensor, choices: SeededChoices | None) -> _Own:
    request, tree = case
    if taken_as_they_are(request):
        return _Own(place, start, rows, tree, request, choices)
    paths = [tree.tokens_to(node) for node in range(len(tree))]
    return _Own(place, None, adjust(rows, request, paths), tree, request, choices)


def _within_memory(owns: list[_Own], vocab: int) -> Iterator[list[_Own]]:
    """Cut cases into groups whose laws together hold at most MOST numbers, or are one case's."""
    group: list[_Own] = []
    for own in owns:
        if group and vocab * sum(len(one.tree) for one in [*group, own]) > MOST:
            yield group
            group = []
        group.append(own)
    yield group


def _launched(rule: str, group: list[_Own], rows: Tensor) -> _Pending:
    own = _joined(group, rows)
    if rule == "greedy":
        return _followed(group, own.argmax(1, keepdim=True))
    if rule == "naive":
        return _drawn(group, own)
    return _walked(group, own, "multi_step" if rule == "multi_step" else "traversal")


def _joined(group: list[_Own], rows: Tensor) -> Tensor:
    """Return the rows of some cases, in order; where they lie so already, as a view."""
    if len(group) == 1:
        return group[0].rows
    end = first = group[0].start
    for own in group:
        if end is None or own.start != end:
            return torch.cat([own.rows for own in group])
        end += len(own.tree)
    return rows[first:end]


def _followed(group: list[_Own], best: Tensor) -> _Pending:
    """Follow the LLM's tokens after each node, [N, 1], down the trees."""

    def read(found: list[list[int]]) -> Iterator[tuple[int, Verdict]]:
        start = 0
        for own in group:
            verdict = follow(own.tree, lambda row: found[row][0], start)
            if own.choices is not None:
                own.choices.skip(len(verdict[0]) + 1)
            yield own.place, verdict
            start += len(own.tree)

    return _Pending(best, read)


def _drawn(group: list[_Own], rows: Tensor) -> _Pending:
    """Have the LLM draw after every node, by the number that a walk would have there."""
    uniforms: list[float] = []
    for own in group:
        depths = own.tree.depths()
        ahead = own.foreseen.ahead(max(depths) + 1)
        uniforms += [ahead[depth] for depth in depths]
    sent = send_arrays(
        {"uniforms": np.array(uniforms)[:, None], **_columns(group, rows)}, rows.device
    )
    laws = warp_rows(rows, warp_of(sent))
    return _followed(group, draw_tokens(laws, sent["uniforms"]))


def _walked(group: list[_Own], rows: Tensor, walk: Rule) -> _Pending:
    """Have the trees walked."""
    columns = Columns.of([own.tree for own in group], walk)
    most = 2 + int(np.diff(columns.starts).max())
    uniforms = np.array([own.foreseen.ahead(most) for own in group])
    sent = send_arrays(
        {"uniforms": uniforms, **columns.arrays(), **_columns(group, rows)}, rows.device
    )
    laws = warp_rows(rows, warp_of(sent))
    draws = Draws(**{name: sent[name] for name in columns.arrays()}, proposals=columns.proposals)

    def read(found: list[list[int]]) -> Iterator[tuple[int, Verdict]]:
        for own, (node, token, used) in zip(group, found, strict=True):
            own.foreseen.skip(used)
            yield own.place, (list(own.tree.path(node))[::-1], token)

    return _Pending(walk_trees(laws, draws, sent["uniforms"], rule=walk), read)


def _columns(group: list[_Own], rows: Tensor) -> dict[str, np.typing.NDArray[np.generic]]:
    params = [own.request.params for own in group]
    return warp_columns(params, [len(own.tree) for own in group], rows.shape[1])
