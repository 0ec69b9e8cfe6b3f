"""How a node's children are drawn from an SSM (paper, section 3.1; Theorem 4.2).

Greedy requests get the k likeliest tokens, chosen outright.  Sampling requests get k draws from
the SSM's law, warped as the LLM's will be, so that verification is exact; the k likeliest tokens
with the SSM's probabilities would not be.
"""

from torch import Tensor

from specinfer.choices import Choices
from specinfer.sampling import SamplingParams
from specinfer.token_tree import TokenTree
from specinfer.warp import best_tokens, warp

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

    Without replacement, and greedily, fewer are drawn where the law has fewer tokens.
    """
    if params.greedy:
        law = row.softmax(0)
        best = best_tokens(law[None]) if width == 1 else law.topk(min(width, len(law))).indices
        for token, share in zip(best.tolist(), law[best].tolist(), strict=True):
            if share > 0:
                tree.add(node, token, key=int(share * SHARES))
        return
    law = warp(row[None], params)[0]
    gone: tuple[int, ...] = ()
    rest = law
    for _ in range(width):
        token = choices.draw(rest)
        tree.add(node, token, law, without=gone)
        if replacement:
            continue
        gone = (*gone, token)
        rest = rest.clone()
        rest[token] = 0
        left = rest.sum()
        if left <= 0:
            return
        rest = rest / left
