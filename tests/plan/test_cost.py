"""The arithmetic of one pass, in figures that can be done in the head."""

from dataclasses import replace

import pytest

from specinfer.plan.cost import Offloading, Served
from specinfer.plan.machine import ALL_REDUCE_S, Device
from specinfer.plan.shape import ModelShape


@pytest.fixture
def served(llm: ModelShape, device: Device) -> Served:
    return Served(shape=llm, device=device, width=2.0)


def test_one_row_costs_a_reading_of_the_weights_and_the_layers(served: Served) -> None:
    assert served.pass_s(1) == pytest.approx(2_000 / 1e4 + 10 * 0.01)


def test_many_rows_cost_their_arithmetic(served: Served) -> None:
    assert served.pass_s(100) == pytest.approx(100 * 2_000 / 1e5 + 0.1)


def test_the_two_meet_at_the_free_rows(served: Served) -> None:
    assert served.free_rows == 10
    assert served.pass_s(10) == pytest.approx(served.pass_s(1))
    assert served.pass_s(11) > served.pass_s(1)


def test_the_cache_is_read_beside_the_weights(served: Served) -> None:
    cached = 3 * 5 * (2 * 10 * 2 * 8) * 2
    assert served.pass_s(1, 3, 5) == pytest.approx((2_000 + cached) / 1e4 + 0.1)


def test_attention_grows_with_the_context(served: Served) -> None:
    attention = 4 * 10 * 4 * 8 * 50
    assert served.pass_s(100, 1, 50) == pytest.approx(100 * (2_000 + attention) / 1e5 + 0.1)


def test_a_split_divides_the_work_and_adds_exchanges(llm: ModelShape, device: Device) -> None:
    split = Served(shape=llm, device=device, width=2.0, tp=2)
    sent = 1 * 32 * 2 / 1e6  # 2·(2-1)/2 times a row's hidden state
    exchange = 10 * 2 * (ALL_REDUCE_S + sent)
    assert split.pass_s(1) == pytest.approx(1_000 / 1e4 + 0.1 + exchange)
    assert split.weight_bytes == 1_100


def test_float32_models_cache_float32(llm: ModelShape, device: Device) -> None:
    full = Served(shape=llm, device=device, width=4.0)
    assert full.cache_bytes(1) == 2 * 10 * 2 * 8 * 4


def test_int8_reads_half_and_keeps_its_embedding(served: Served) -> None:
    """Of 1,000 parameters read 320 are the head, whose embedding stays in bfloat16."""
    small = replace(served, shape=replace(served.shape, vocab=10), quantization="int8")
    assert small.pass_s(1) == pytest.approx(1_000 / 1e4 + 10 * 0.01)
    assert small.weight_bytes == 1_000 + 320 * 2
    assert small.free_rows == pytest.approx(5)


def test_int4_leaves_the_head(served: Served) -> None:
    small = replace(served, shape=replace(served.shape, vocab=10), quantization="int4_weight_only")
    read = 680 * 0.625 + 320 * 2
    assert small.pass_s(1) == pytest.approx(read / 1e4 + 10 * 0.01)
    assert small.weight_bytes == read + 100 * 2


def test_an_offloaded_model_waits_for_its_layers(served: Served) -> None:
    """Layers are 680 of the parameters: 1,360 bytes; two of ten are held."""
    off = Offloading("disk", 100.0, 2)
    away = replace(served, shape=replace(served.shape, vocab=10), offloading=off)
    assert away.pass_s(1) == away.pass_s(100) == pytest.approx(13.6)
    assert away.weight_bytes == pytest.approx(2_200 - 0.8 * 1_360)
    assert away.ahead_s == pytest.approx(0.2 * 13.6)
    assert away.free_rows == pytest.approx(13.6 * 1e5 / 2_000)
    fast = replace(away, offloading=replace(off, bandwidth=1e9))
    assert fast.pass_s(1) == pytest.approx(served.pass_s(1))
