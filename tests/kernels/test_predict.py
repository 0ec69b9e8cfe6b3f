"""The prediction's parts: a listing is read, and a quarter multiprocessor counts its cycles."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from cards import CARDS
from multiprocessor import Quarter, Rates, busy, trace

from specinfer_kernels.sass import Instruction, loops, parsed

LISTING = (Path(__file__).parent / "loop.sass").read_text()
RATES = Rates(mma=128, wgmma=1024, fp32=32, memory=1.0, latency=1000, l2=250)


def instruction(op: str, stall: int = 1, sets: tuple[int, ...] = (), *waits: int) -> Instruction:
    return Instruction(0, op, "", stall, sets, waits)


def test_a_listing_gives_instructions_control_codes_and_loops() -> None:
    code = parsed(LISTING)
    assert [loops(code)[0]] == [range(2, 9)] and len(loops(code)) == 1
    assert [each.name for each in code[2:5]] == ["DEPBAR", "BAR", "LDSM"]
    product, load = code[5], code[4]
    assert load.width == 16 and load.sets == product.waits == (1,)
    assert product.stall == 8 and product.op == "HMMA.16816.F32.BF16"
    assert not any(each.spills for each in code)


def test_a_way_repeats_the_loop_and_its_last_turns_load_nothing() -> None:
    way = trace(parsed(LISTING), (3,))
    assert sum(each.name == "HMMA" for each in way) == 3
    assert sum(each.name == "LDGSTS" for each in way) == 3  # one ahead of the loop
    assert way[-1].op == "EXIT"


def test_products_of_all_warps_queue_for_the_tensor_core() -> None:
    product = instruction("HMMA.16816.F32.BF16")
    assert busy([product], RATES) == {"tensor": 32, "issue": 1}
    assert Quarter(RATES).run([product] * 10, warps=2, blocks=2) == pytest.approx(39 * 32 + 1)


def test_loads_wait_for_bandwidth_and_latency_and_overlap_with_each_other() -> None:
    load, close = instruction("LDGSTS.E.BYPASS.128"), instruction("LDGDEPBAR")
    wait = Instruction(0, "DEPBAR.LE", "SB0, 0x0", 1, (), ())
    assert Quarter(RATES).run([load, load, close, wait], 1, 1) == pytest.approx(2 * 512 + 1001)


def test_warps_of_a_block_meet_at_a_barrier() -> None:
    slow = instruction("LDG.E", sets=(0,))
    meet, after = instruction("BAR.SYNC"), instruction("FADD", 1, (), 0)
    alone = Quarter(RATES).run([slow, after], 1, 1)
    assert Quarter(RATES).run([slow, after, meet], 2, 1) > alone > RATES.l2


def test_an_a10g_is_slower_at_products_than_at_copies_by_its_data_sheet() -> None:
    card = CARDS["A10G"]
    flop = card.tensor * card.multiprocessors * card.clock
    assert flop == pytest.approx(70e12, rel=0.01)
    assert not card.stacked and CARDS["H200"].stacked
