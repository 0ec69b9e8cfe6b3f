"""Logits as a request wants them: penalties, biases, bans, grammar; each node by its own history.

A node of a token tree is adjusted as if its path were already part of the answer, so that what
is verified is what plain decoding would have sampled from.  SSM rows go through here as well.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.transfer import send, send_arrays


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
    allowed = send_arrays({"mask": mask[: len(row)]}, row.device)["mask"]
    wanted = row.masked_fill(~allowed, -torch.inf)
    if request.params.ignore_eos and request.eos:
        wanted.index_fill_(0, send(sorted(request.eos), row.device), -torch.inf)
    possible = wanted.amax() > -torch.inf
    if row.device.type == "cpu" and possible:
        return wanted
    anything = torch.zeros_like(row).masked_fill_(~allowed, -torch.inf)
    return torch.where(possible, wanted, anything)  # a GPU makes both, and nobody waits for it


def _weighed(rows: Tensor, request: Request, paths: Sequence[Sequence[int]]) -> Tensor:
    """Apply all but the grammar."""
    params = request.params
    if params.penalised:
        rows = _penalised(rows, request, paths)
    if params.logit_bias:
        biases = {
            "tokens": np.array(list(params.logit_bias)),
            "added": np.array(list(params.logit_bias.values()), dtype=np.float64),
        }
        sent = send_arrays(biases, rows.device)
        rows = rows.index_add(1, sent["tokens"], sent["added"].to(rows.dtype).expand(len(rows), -1))
    early = [
        n for n, path in enumerate(paths) if request.emitted + len(path) < params.min_new_tokens
    ]
    banned = request.eos | set(params.stop_token_ids)
    if early and banned:
        rows = rows.clone(memory_format=torch.contiguous_format)
        places = [n * rows.shape[1] + token for n in early for token in banned]
        rows.view(-1).index_fill_(0, send(places, rows.device), -torch.inf)
    return rows


def _penalised(rows: Tensor, request: Request, paths: Sequence[Sequence[int]]) -> Tensor:
    """Apply the three penalties; only tokens that occurred are touched.

    First those of the text so far in all rows at once, then each row's of its own path, anew from
    its logits: what an entry becomes is told by its own counts alone.
    """
    params, answer = request.params, Counter(request.tokens[len(request.prompt) :])
    common, vocab = sorted(set(request.tokens)), rows.shape[1]
    own = {
        n * vocab + token: answer[token] + count
        for n, path in enumerate(paths)
        for token, count in Counter(path).items()
    }
    columns = {
        "common": np.array(common),
        "often": np.array([answer[token] for token in common], dtype=np.float64),
        "places": np.array([*own], dtype=np.int64),
        "own": np.array([*own.values()], dtype=np.float64),
    }
    sent = send_arrays(columns, rows.device)
    rows = rows.contiguous()
    found = rows.clone()
    seen = rows.index_select(1, sent["common"])
    found.index_copy_(1, sent["common"], _discouraged(seen, sent["often"], params))
    if own:
        seen = rows.view(-1).index_select(0, sent["places"])
        found.view(-1).index_copy_(0, sent["places"], _discouraged(seen, sent["own"], params))
    return found


def _discouraged(logits: Tensor, often: Tensor, params: SamplingParams) -> Tensor:
    """Return the logits of tokens that the answer has so often; often [K], logits [..., K]."""
    factor, often = params.repetition_penalty, often.to(logits.dtype)
    logits = torch.where(logits > 0, logits / factor, logits * factor)
    amounts = params.frequency_penalty * often + params.presence_penalty
    return torch.where(often > 0, logits - amounts, logits)
