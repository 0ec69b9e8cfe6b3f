"""Token tree verification (paper, section 4.3): which of the speculated tokens stand."""

from collections.abc import Callable, Sequence

from torch import Tensor

from specinfer.adjust import adjust_lazily, taken_as_they_are
from specinfer.choices import Choices
from specinfer.config import Verifier
from specinfer.sampling import SamplingParams
from specinfer.token_tree import TokenTree
from specinfer.verify.greedy import follow, likeliest, verify_greedy
from specinfer.verify.laws import Laws, WarpedRows, weights
from specinfer.verify.multi_step import verify_multi_step
from specinfer.verify.naive import verify_naive
from specinfer.verify.rule import draws_with_replacement, rule_of
from specinfer.verify.together import Case, Verdict, verify_together
from specinfer.verify.traversal import verify_traversal


def verify(
    tree: TokenTree, rows: Laws, params: SamplingParams, choices: Choices, verifier: Verifier
) -> Verdict:
    """Return the accepted nodes, root excluded, and the token that follows them.

    rows [N, V] are the LLM's logits after each node, float32; a tensor, or anything that gives a
    node's row when asked.  Temperature 0 is always greedy.  How children are drawn goes with the
    verifier: see draws_with_replacement.
    """
    if params.greedy:
        return verify_greedy(tree, rows)
    rule = rule_of(tree, verifier)
    if rule == "naive":
        return verify_naive(tree, weights(rows, params), choices)
    laws = WarpedRows(rows, params)
    if rule == "traversal":
        return verify_traversal(tree, laws, choices)
    return verify_multi_step(tree, laws, choices)


def verify_step(
    cases: Sequence[Case], rows: Tensor, verifier: Verifier, *, together: bool
) -> list[Verdict]:
    """Decide on all trees of a step; rows [N, V] are the LLM's logits after their nodes in order.

    together: by kernels, as far as they can, and not one by one, looking at rows as a walk goes.
    """
    known: Sequence[Verdict | None] = [None] * len(cases)
    if together:
        known = verify_together(cases, rows, verifier)
    best: Callable[[int], int] | None = None
    verdicts: list[Verdict] = []
    start = 0
    for case, verdict in zip(cases, known, strict=True):
        plain = taken_as_they_are(case.request)
        if verdict is None and plain and case.request.params.greedy:
            best = best or likeliest(rows)
            verdict = follow(case.tree, best, start)
        end = start + len(case.tree)
        if verdict is None:
            own = rows[start:end] if len(cases) > 1 else rows
            verdict = _alone(case, own, verifier, plain)
        verdicts.append(verdict)
        start = end
    return verdicts


def _alone(case: Case, rows: Tensor, verifier: Verifier, plain: bool) -> Verdict:
    request, tree = case
    paths = () if plain else [tree.tokens_to(node) for node in range(len(tree))]
    laws = rows if plain else adjust_lazily(rows, request, paths)
    return verify(tree, laws, request.params, request.choices, verifier)


__all__ = [
    "Case",
    "Laws",
    "Verdict",
    "WarpedRows",
    "draws_with_replacement",
    "follow",
    "likeliest",
    "verify",
    "verify_greedy",
    "verify_multi_step",
    "verify_naive",
    "verify_step",
    "verify_traversal",
]
