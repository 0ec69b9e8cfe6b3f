"""Logits as a request wants them: penalties, biases and bans, each node with its own history.

A node of a token tree is adjusted as if its path were already part of the answer, so that what
is verified is what plain decoding would have sampled from.  SSM rows go through here as well.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from specinfer.request import Request


def adjust(rows: Tensor, request: Request, paths: Sequence[Sequence[int]]) -> Tensor:
    """Return the logits [N, V] adjusted for a request whose answer goes on along each path.

    paths[n] are the speculated tokens up to row n.  The rows given are left as they are.
    """
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
