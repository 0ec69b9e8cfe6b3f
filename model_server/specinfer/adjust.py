"""Logits as a request wants them: penalties, biases, bans, grammar; each node by its own history.

A node of a token tree is adjusted as if its path were already part of the answer, so that what
is verified is what plain decoding would have sampled from.  SSM rows go through here as well.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from specinfer.request import Request


class Constrained:
    """Rows of logits [N, V], each masked by its request's grammar when it is first looked at.

    A verifier looks at the nodes of one path; a mask for every node of every tree would cost a
    busy batch more than a GPU's forward pass.
    """

    def __init__(self, rows: Tensor, request: Request, paths: Sequence[Sequence[int]]) -> None:
        self._rows, self._request, self._paths = rows, request, paths

    def __getitem__(self, node: int, /) -> Tensor:
        """Return the logits after node, [V]."""
        return _masked(self._rows[node], self._request, self._paths[node])


def taken_as_they_are(request: Request) -> bool:
    """Tell whether a request's logits need no adjustment, so that nobody need know the paths."""
    return not request.adjusted and request.emitted >= request.params.min_new_tokens


def adjust(rows: Tensor, request: Request, paths: Sequence[Sequence[int]]) -> Tensor:
    """Return the logits [N, V] adjusted for a request whose answer goes on along each path.

    paths[n] are the speculated tokens up to row n.  The rows given are left as they are.
    """
    some = adjust_lazily(rows, request, paths)
    return some if isinstance(some, Tensor) else torch.stack([some[n] for n in range(len(rows))])


def adjust_lazily(
    rows: Tensor, request: Request, paths: Sequence[Sequence[int]]
) -> Tensor | Constrained:
    """Do the same, the grammar's part of it only for the rows that will be looked at."""
    rows = _weighed(rows, request, paths)
    return rows if request.constraint is None else Constrained(rows, request, paths)


def _masked(row: Tensor, request: Request, path: Sequence[int]) -> Tensor:
    """Forbid what the grammar does not allow after a path, row [V].

    After a path that breaks the grammar, or has ended it, anything goes: nothing that follows is
    ever emitted.
    """
    assert request.constraint is not None
    mask = request.constraint.mask(path)
    if mask is None or not mask.any():
        return row
    allowed = torch.from_numpy(mask[: len(row)]).to(row.device)
    wanted = row.masked_fill(~allowed, -torch.inf)
    if request.params.ignore_eos and request.eos:
        wanted[sorted(request.eos)] = -torch.inf
    if wanted.amax() > -torch.inf:
        return wanted
    return torch.zeros_like(row).masked_fill(~allowed, -torch.inf)


def _weighed(rows: Tensor, request: Request, paths: Sequence[Sequence[int]]) -> Tensor:
    """Apply all but the grammar."""
    params = request.params
    if params.penalised:
        rows = _penalised(rows, request, paths)
    if params.logit_bias:
        tokens, biases = zip(*params.logit_bias.items(), strict=True)
        rows = rows.index_add(
            1,
            torch.tensor(tokens, device=rows.device),
            torch.tensor(biases, dtype=rows.dtype, device=rows.device).expand(len(rows), -1),
        )
    early = [
        n for n, path in enumerate(paths) if request.emitted + len(path) < params.min_new_tokens
    ]
    if early:
        rows = rows.clone()
        banned = sorted(request.eos | set(params.stop_token_ids))
        rows[torch.tensor(early)[:, None], torch.tensor(banned, dtype=torch.int64)] = -torch.inf
    return rows


def _penalised(rows: Tensor, request: Request, paths: Sequence[Sequence[int]]) -> Tensor:
    """Apply the three penalties; only tokens that occurred are touched."""
    params, answer = request.params, Counter(request.tokens[len(request.prompt) :])
    rows = rows.clone()
    for row, path in zip(rows, paths, strict=True):
        counts = answer + Counter(path)
        seen = torch.tensor(sorted({*request.tokens, *path}), device=rows.device)
        logits = row[seen]
        factor = params.repetition_penalty
        row[seen] = torch.where(logits > 0, logits / factor, logits * factor)
        if counts:
            tokens = torch.tensor(list(counts), device=rows.device)
            often = torch.tensor(list(counts.values()), dtype=rows.dtype, device=rows.device)
            row[tokens] -= params.frequency_penalty * often + params.presence_penalty
    return rows
