"""How a node's children are drawn from an SSM (paper, section 3.1; Theorem 4.2).

Greedy requests get the k likeliest tokens, chosen outright.  Sampling requests get k draws from
the SSM's law, warped as the LLM's will be, so that verification is exact; the k likeliest tokens
with the SSM's probabilities would not be.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from specinfer.adjust import taken_as_they_are
from specinfer.choices import Choices
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.token_tree import TokenTree
from specinfer.warp import best_tokens, warp

Ranked = list[tuple[int, float]]  # tokens and their probabilities

SHARES = 10  # steps in which an SSM's own confidence in a token is told apart


def draw_children(
    tree: TokenTree,
    node: int,
    row: Tensor,
    width: int,
    params: SamplingParams,
    choices: Choices,
    *,
    replacement: bool = True,
) -> None:
    """Add width draws beneath node from the SSM's logits there, row [V].

    Without replacement, and greedily, fewer are drawn where the law has fewer tokens; width
    random numbers are used all the same.
    """
    if params.greedy:
        add_likeliest(tree, node, likeliest(row[None], width)[0])
        return
    law = warp(row[None], params)[0]
    gone: tuple[int, ...] = ()
    rest = law
    for left in reversed(range(width)):
        token = choices.draw(rest)
        tree.add(node, token, law, without=gone)
        if replacement:
            continue
        gone = (*gone, token)
        rest = rest.clone()
        rest[token] = 0
        mass = rest.sum()
        if mass <= 0:
            choices.skip(left)
            return
        rest = rest / mass


def add_drawn(
    tree: TokenTree, node: int, law: Tensor, tokens: Iterable[int], *, replacement: bool
) -> None:
    """Add tokens drawn beneath node from law [V], in order; from one below 0 nothing was left."""
    gone: tuple[int, ...] = ()
    for token in tokens:
        if token < 0:
            return
        tree.add(node, token, law, without=gone)
        if not replacement:
            gone = (*gone, token)


def ranked(rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return each row's width likeliest tokens and their probabilities, of logits [R, V]."""
    laws = rows.softmax(1)
    count = min(width, laws.shape[1])
    best = best_tokens(laws)[:, None] if count == 1 else laws.topk(count).indices
    return best, laws.gather(1, best)


def likeliest(rows: Tensor, width: int) -> list[Ranked]:
    """Return the same as pairs, row by row, of logits in host memory."""
    best, shares = ranked(rows, width)
    pairs = zip(best.tolist(), shares.numpy().tolist(), strict=True)
    return [list(zip(*pair, strict=True)) for pair in pairs]


def add_likeliest(tree: TokenTree, node: int, best: Iterable[tuple[int, float]]) -> None:
    """Add the tokens of one row of `likeliest` beneath node, those of probability 0 left out."""
    for token, share in best:
        if share > 0:
            tree.add(node, token, key=int(share * SHARES))


def is_plain(request: Request) -> bool:
    """Tell whether the likeliest tokens of the logits as they are become a node's children."""
    return request.params.greedy and taken_as_they_are(request)


def fitted(rows: Tensor, vocab: int, vocabulary: Tensor | None) -> Tensor:
    """Bring logits [R, V of the SSM] to the LLM's tokens, [R, vocab]; what it lacks gets -inf.

    Without a draft vocabulary the ids agree, and only the number of padding rows differs.
    """
    if vocabulary is not None:
        spread = rows.new_full((len(rows), vocab), -torch.inf)
        return spread.index_copy_(1, vocabulary, rows)
    missing = vocab - rows.shape[1]
    if missing <= 0:
        return rows[:, :vocab]
    return torch.nn.functional.pad(rows, (0, missing), value=-torch.inf)
