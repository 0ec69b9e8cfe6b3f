"""What the LLM says of the tokens that followed: log-probabilities of its own, unadjusted rows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specinfer.request import TokenLogprob
from specinfer.transfer import bring, send_arrays


class Question(NamedTuple):
    """One request's: the rows decided by, what followed each, and how many of the best to tell."""

    rows: Sequence[int]
    tokens: Sequence[int]
    best: int


def logprobs(rows: Tensor, asked: Sequence[Question]) -> Iterator[list[TokenLogprob]]:
    """Yield each question's answer, by logits [N, V]; one transfer from a GPU brings all."""
    if not asked:
        return
    places = {
        "rows": np.array([row for question in asked for row in question.rows]),
        "tokens": np.array([token for question in asked for token in question.tokens]),
    }
    sent, most = send_arrays(places, rows.device), max(question.best for question in asked)
    laws = rows.index_select(0, sent["rows"]).log_softmax(1)
    own, best = laws.gather(1, sent["tokens"][:, None]), laws.topk(most)
    (found,) = bring([torch.cat([own.double(), best.values.double(), best.indices.double()], 1)])
    lines = iter(found)
    for question in asked:
        yield [_told(token, next(lines), question.best, most) for token in question.tokens]


def _told(token: int, line: list[float], count: int, most: int) -> TokenLogprob:
    """Read a line: the token's own number, then the most likely ones', then which they are."""
    values, tokens = line[1 : 1 + count], line[1 + most : 1 + most + count]
    return TokenLogprob(token, line[0], tuple(zip(map(int, tokens), values, strict=True)))
