"""Logits to the law that is sampled from: temperature, then top-k, then top-p.

The LLM's rows and an SSM's rows go through the same function, so that the ratio of the two in
verification (paper, Algorithm 2) compares like with like.
"""

import torch
from torch import Tensor

from specinfer.request import SamplingParams


def warp(rows: Tensor, params: SamplingParams) -> Tensor:
    """Return the laws of rows, both [N, V] float32; each sums to 1.

    At temperature 0 a law is the point mass on the first of the largest logits.
    """
    if params.greedy:
        return torch.zeros_like(rows).scatter_(1, rows.argmax(1, keepdim=True), 1.0)
    rows = rows / params.temperature
    if params.top_k:
        rows = _keep_top_k(rows, params.top_k)
    laws = rows.softmax(1)
    return _keep_top_p(laws, params.top_p) if params.top_p < 1 else laws


def _keep_top_k(rows: Tensor, k: int) -> Tensor:
    """Forbid all but k tokens a row; of equal logits the lower ids stay."""
    if k >= rows.shape[1]:
        return rows
    kept = rows.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return torch.full_like(rows, -torch.inf).scatter_(1, kept, rows.gather(1, kept))


def _keep_top_p(laws: Tensor, p: float) -> Tensor:
    """Keep the fewest likeliest tokens whose mass reaches p, at least one, and renormalise."""
    ordered, order = laws.sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(1) - ordered
    kept = torch.zeros_like(laws).scatter_(1, order, ordered.where(before < p, 0.0))
    return kept / kept.sum(1, keepdim=True)
