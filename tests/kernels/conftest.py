"""Shared cases of tree attention: trees, head layouts, and the error budget."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from specinfer_kernels import TreeBatch, plan_attention, tree_attention
from specinfer_kernels.testing import Tensors
from specinfer_kernels.tree_attention.reference import define

Check = Callable[..., None]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def within_budget() -> Check:
    """Return a check: at most twice the error of the plain formula in the same dtype."""

    def check(
        batch: TreeBatch,
        tensors: Tensors,
        backend: str,
        softcap: float | None = None,
        window: int | None = None,
    ) -> None:
        scale = tensors.query.shape[-1] ** -0.5
        plan = plan_attention(batch, dtype=tensors.query.dtype, backend=backend)
        parts = tensors.query, tensors.keys, tensors.values
        got = tree_attention(*parts, plan, scale=scale, softcap=softcap, window=window)
        assert got.dtype == tensors.query.dtype and got.shape == tensors.query.shape
        rules = {"scale": scale, "softcap": softcap, "window": window}
        exact = define(batch, *(part.double() for part in parts), **rules)
        plain = define(batch, *parts, **rules)
        # Eight roundings of a wide type beside it: one row's plain error may happen to be nought.
        wide = torch.promote_types(tensors.query.dtype, torch.float32)
        budget = 2 * _error(plain, exact) + 8 * torch.finfo(wide).eps * exact.abs().max()
        assert _error(got, exact) <= budget

    return check


def _error(got: Tensor, exact: Tensor) -> Tensor:
    return (got.double() - exact).abs().max()
