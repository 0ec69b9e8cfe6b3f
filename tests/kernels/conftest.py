"""Shared by the tests of kernels: a seeded generator and the error budget."""

from collections.abc import Callable

import pytest
import torch

from specinfer_kernels import AttentionPlan, tree_attention
from specinfer_kernels.testing import Tensors, error_and_budget


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def within_budget() -> Callable[..., None]:
    """Return a check that a plan errs at most twice as much as the plain formula in its dtype."""

    def check(
        plan: AttentionPlan,
        tensors: Tensors,
        softcap: float | None = None,
        window: int | None = None,
    ) -> None:
        scale = tensors.query.shape[-1] ** -0.5
        parts = tensors.query, tensors.keys, tensors.values
        got = tree_attention(*parts, plan, scale=scale, softcap=softcap, window=window)
        assert got.dtype == tensors.query.dtype and got.shape == tensors.query.shape
        error, budget = error_and_budget(
            plan.batch, tensors, got, scale=scale, softcap=softcap, window=window
        )
        assert error <= budget

    return check
