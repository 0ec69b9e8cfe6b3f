"""This machine as a row of the table: bandwidth, arithmetic and fixed cost, measured now."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.nn.functional import linear

from specinfer.config import DType
from specinfer.plan.machine import USABLE, Device, Machine

SIDE, MATRICES = 1024, 56  # 117 MB in bfloat16: no cache holds them
ROWS, MULTIPLIED = 128, 8
RUNS = 5  # of which the best counts: noise only ever adds
SMALL = 64


def this_machine(dtype: torch.dtype, clock: Callable[[], float] = time.perf_counter) -> Machine:
    """Measure the CPU for about two seconds."""
    weights = [torch.ones(SIDE, SIDE, dtype=dtype) for _ in range(MATRICES)]
    one, many = torch.ones(1, SIDE, dtype=dtype), torch.ones(ROWS, SIDE, dtype=dtype)
    streamed = MATRICES * SIDE * SIDE * dtype.itemsize
    bandwidth = streamed / _best(lambda: [linear(one, weight) for weight in weights], clock)
    work = 2 * ROWS * SIDE * SIDE * MULTIPLIED
    flops = work / _best(lambda: [linear(many, weight) for weight in weights[:MULTIPLIED]], clock)
    device = Device(
        name=f"CPU, {torch.get_num_threads()} threads",
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * USABLE,
        bandwidth=bandwidth,
        flops=flops,
        layer_s=_layer_s(dtype, clock),
    )
    return Machine(name="this machine", device=device, devices=1, usd=None, ec2_usd=None)


def _best(call: Callable[[], object], clock: Callable[[], float]) -> float:
    call()
    return min(_timed(call, clock) for _ in range(RUNS))


def _timed(call: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    call()
    return clock() - started


def _layer_s(dtype: torch.dtype, clock: Callable[[], float]) -> float:
    """What a layer costs whatever its size: ten more layers of a model of nearly no weights."""
    few, many = (_best(_small_pass(layers, dtype), clock) for layers in (2, 12))
    return max(0.0, many - few) / 10


def _small_pass(layers: int, dtype: torch.dtype) -> Callable[[], object]:
    """Return a pass of one row of a Llama, run as the engine runs it."""
    from specinfer.lean import load_llm
    from specinfer.tree_attention import Segment, plan

    with TemporaryDirectory() as folder:
        _write_small(Path(folder), layers)
        llm = load_llm(Path(folder), _name(dtype), torch.device("cpu"), "none")
    cache = llm.new_cache(tokens=16, page_size=16)
    sequence = cache.open([])
    cache.reserve(sequence, 1)
    planned = plan(cache, [Segment(sequence, [0], [-1], range(1))])
    return lambda: llm.forward(planned)


def _write_small(folder: Path, layers: int) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    config = AutoConfig.for_model(
        "llama",
        vocab_size=SMALL,
        hidden_size=SMALL,
        intermediate_size=SMALL,
        num_hidden_layers=layers,
        num_attention_heads=2,
    )
    kind: Any = AutoModelForCausalLM
    kind.from_config(config).save_pretrained(folder)


def _name(dtype: torch.dtype) -> DType:
    names: dict[torch.dtype, DType] = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
    return names.get(dtype, "float32")
