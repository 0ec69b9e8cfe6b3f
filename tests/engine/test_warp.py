"""Logits to laws."""

import pytest
import torch

from specinfer.request import SamplingParams
from specinfer.warp import warp

ROWS = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.0, 5.0]], dtype=torch.float64)


def test_temperature_zero_is_the_first_best_token() -> None:
    assert warp(ROWS, SamplingParams()).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert warp(torch.zeros(1, 3), SamplingParams()).tolist() == [[1, 0, 0]]


def test_temperature_divides_the_logits() -> None:
    torch.testing.assert_close(warp(ROWS, SamplingParams(temperature=2)), (ROWS / 2).softmax(1))


def test_the_coldest_temperature_is_a_point_mass() -> None:
    """1e-40 is no float32 number but 0: such rows were divided into NaN."""
    rows = torch.tensor([[2.0, 1.0, -torch.inf, 2.0]])
    laws = warp(rows, SamplingParams(temperature=1e-40))
    assert laws.tolist() == [[0.5, 0, 0, 0.5]]


def test_top_k_keeps_exactly_k_even_among_equals() -> None:
    laws = warp(torch.zeros(1, 5), SamplingParams(temperature=1, top_k=2))
    assert laws.tolist() == [[0.5, 0.5, 0, 0, 0]]


def test_top_k_beyond_the_vocabulary_changes_nothing() -> None:
    params = SamplingParams(temperature=1, top_k=10)
    torch.testing.assert_close(warp(ROWS, params), ROWS.softmax(1))


@pytest.mark.parametrize(
    ("p", "kept"), [(0.5, 1), (0.64, 1), (0.65, 2), (0.88, 2), (0.89, 3), (1.0, 4)]
)
def test_top_p_keeps_the_fewest_tokens_that_reach_it(p: float, kept: int) -> None:
    laws = warp(ROWS[:1], SamplingParams(temperature=1, top_p=p))
    assert int((laws > 0).sum()) == kept
    assert float(laws.sum()) == pytest.approx(1)


def test_every_row_is_a_law() -> None:
    rows = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    for params in (
        SamplingParams(temperature=0.3),
        SamplingParams(temperature=5, top_k=7, top_p=0.4),
        SamplingParams(temperature=1, top_p=1e-9),
    ):
        laws = warp(rows, params)
        torch.testing.assert_close(laws.sum(1), torch.ones(6))
        assert bool((laws >= 0).all())


@pytest.mark.parametrize("name", ["top_p", "typical_p"])
def test_a_mass_too_small_for_float32_keeps_a_token_all_the_same(name: str) -> None:
    """It kept none, and a law of 0 / 0 ended the engine."""
    (law,) = warp(ROWS[:1], SamplingParams(temperature=1, **{name: 1e-50}))  # type: ignore[arg-type]
    assert law.max() == law.sum() == 1
