"""Logits to the law that is sampled from: temperature, then top-k, top-p, typical-p, min-p.

The LLM's rows and an SSM's rows go through the same function, so that the ratio of the two in
verification (paper, Algorithm 2) compares like with like.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specinfer.sampling import SamplingParams

COLDEST = 1e-30  # a temperature by which no difference of logits overflows
LEAST = torch.finfo(torch.float32).tiny  # of a mass to be reached: below it float32 may have 0
HEAD = 1024  # likeliest tokens that nearly always hold top_p: sorting 49k costs ten times as much


def warp(rows: Tensor, params: SamplingParams) -> Tensor:
    """Return the laws of rows, both [N, V] float32; each sums to 1.

    At temperature 0 a law is the point mass on the first of the largest logits.
    """
    if params.greedy:
        return torch.zeros_like(rows).scatter_(1, rows.argmax(1, keepdim=True), 1.0)
    if 0 < params.top_k < rows.shape[1]:
        rows = _keep_top_k(rows, params.top_k)
    laws = _softmax(rows, params.temperature)
    if params.top_p < 1:
        laws = _keep_top_p(laws, params.top_p)
    if params.typical_p < 1:
        laws = _keep_typical(laws, params.typical_p)
    if params.min_p > 0:
        laws = _normalised(laws, laws >= params.min_p * laws.amax(1, keepdim=True))
    return laws


def best_tokens(rows: Tensor) -> Tensor:
    """Return [N], where the largest entry of each row [N, V] is, the first of several.

    By numpy on a CPU: 3 us a row of 49k, where torch's argmax takes 42.
    """
    if rows.device.type == "cpu":
        return torch.from_numpy(rows.numpy().argmax(1))
    return rows.argmax(1)


def _softmax(rows: Tensor, temperature: float) -> Tensor:
    """Return the softmax of rows / temperature."""
    if rows.device.type != "cpu":
        return (rows if temperature == 1 else rows / max(temperature, COLDEST)).softmax(1)
    logits = rows.numpy()
    laws = np.empty_like(logits)
    for row, law in zip(logits, laws, strict=True):
        exponentials(row, temperature, law)
        law /= law.sum()
    return torch.from_numpy(laws)


def exponentials(
    row: NDArray[np.floating], temperature: float, out: NDArray[np.floating] | None = None
) -> NDArray[np.floating]:
    """Return what is in proportion to a row's law, [V], the largest of them 1.

    By numpy: behind a pass, its caches cold, torch's operators take twice the time, and where
    another program wants a core their threads wait for each other, 8 ms a row.
    """
    weights: NDArray[np.floating] = np.subtract(row, np.maximum.reduce(row), out=out)
    if temperature != 1:
        weights *= 1 / max(temperature, COLDEST)
    np.exp(weights, out=weights)
    return weights


def _keep_top_k(rows: Tensor, k: int) -> Tensor:
    """Forbid all but k tokens a row; of those equal to the k-th the lower ids stay."""
    least = rows.topk(k, dim=1).values[:, -1:]
    above, equal = rows > least, rows == least
    room = k - above.sum(1, keepdim=True)
    return rows.masked_fill(~(above | (equal & (equal.cumsum(1) <= room))), -torch.inf)


def _keep_top_p(laws: Tensor, p: float) -> Tensor:
    """Keep the fewest likeliest tokens whose mass reaches p, at least one."""
    size = min(HEAD, laws.shape[1])
    head, order = laws.topk(size, dim=1)
    if size < laws.shape[1] and bool((head.sum(1) < p).any()):
        head, order = laws.sort(dim=1, descending=True, stable=True)
    return _keep_until(laws, head, order, p)


def _keep_typical(laws: Tensor, p: float) -> Tensor:
    """Keep the tokens whose information is nearest the law's entropy, until their mass reaches p.

    Locally typical sampling, arXiv 2202.00666.
    """
    surprise = -laws.clamp(min=torch.finfo(laws.dtype).tiny).log()
    entropy = (laws * surprise).sum(1, keepdim=True)
    distance = (surprise - entropy).abs().masked_fill(laws == 0, torch.inf)
    order = distance.sort(dim=1, stable=True).indices
    return _keep_until(laws, laws.gather(1, order), order, p)


def _keep_until(laws: Tensor, ordered: Tensor, order: Tensor, p: float) -> Tensor:
    """Keep tokens in the given order until what stands before one has reached p."""
    before = ordered.cumsum(1) - ordered
    return _normalised(
        laws, torch.zeros_like(laws, dtype=torch.bool).scatter_(1, order, before < max(p, LEAST))
    )


def _normalised(laws: Tensor, kept: Tensor) -> Tensor:
    laws = laws.where(kept, 0.0)
    return laws / laws.sum(1, keepdim=True)
