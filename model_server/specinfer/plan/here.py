"""This machine as a row of the table: bandwidth, arithmetic and fixed cost, measured now."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.nn.functional import linear

from specinfer.config import DType
from specinfer.lean import load_llm
from specinfer.llm import CausalLM
from specinfer.plan.cost import Quantization
from specinfer.plan.machine import USABLE, Device, Machine
from specinfer.tree_attention import Segment, plan

SIDE, MATRICES = 1024, 56  # 117 MB in bfloat16: no cache holds them
ROWS, MULTIPLIED = 128, 8
RUNS = 5  # of which the best counts: noise only ever adds
SMALL = 64
LARGE, LAYERS = 1024, 12  # 88 MB in int8
INT8_ROWS = 32


def this_machine(
    dtype: torch.dtype,
    clock: Callable[[], float] = time.perf_counter,
    quantization: Quantization = "none",
) -> Machine:
    """Measure the CPU for a few seconds, in int8 by passes: the engine runs those whole."""
    small, many_layers = (_Timed.of(SMALL, layers, quantization, dtype) for layers in (2, 12))
    layer_s = max(0.0, many_layers.best(1, clock) - small.best(1, clock)) / 10
    bandwidth, flops = (
        _int8_speeds(layer_s, clock) if quantization == "int8" else _speeds(dtype, clock)
    )
    device = Device(
        name=f"CPU, {torch.get_num_threads()} threads",
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * USABLE,
        bandwidth=bandwidth,
        flops=flops,
        layer_s=layer_s,
    )
    return Machine(name="this machine", device=device, devices=1, usd=None, ec2_usd=None)


def _speeds(dtype: torch.dtype, clock: Callable[[], float]) -> tuple[float, float]:
    """Return bytes and operations a second of products with one row and with many."""
    weights = [torch.ones(SIDE, SIDE, dtype=dtype) for _ in range(MATRICES)]
    one, many = torch.ones(1, SIDE, dtype=dtype), torch.ones(ROWS, SIDE, dtype=dtype)
    streamed = MATRICES * SIDE * SIDE * dtype.itemsize
    bandwidth = streamed / _best(lambda: [linear(one, weight) for weight in weights], clock)
    work = 2 * ROWS * SIDE * SIDE * MULTIPLIED
    flops = work / _best(lambda: [linear(many, weight) for weight in weights[:MULTIPLIED]], clock)
    return bandwidth, flops


def _int8_speeds(layer_s: float, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the same of passes over a model that no cache holds."""
    large = _Timed.of(LARGE, LAYERS, "int8", torch.float32)
    fixed = LAYERS * layer_s
    bandwidth = large.weights / (large.best(1, clock) - fixed)
    flops = 2 * INT8_ROWS * large.weights / (large.best(INT8_ROWS, clock) - fixed)
    return bandwidth, flops


def _best(call: Callable[[], object], clock: Callable[[], float]) -> float:
    call()
    return min(_timed(call, clock) for _ in range(RUNS))


def _timed(call: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    call()
    return clock() - started


@dataclass(frozen=True, slots=True)
class _Timed:
    """A Llama of a few layers, run as the engine runs it."""

    llm: CausalLM
    weights: int  # that a pass multiplies by

    @classmethod
    def of(
        cls, hidden: int, layers: int, quantization: Quantization, dtype: torch.dtype
    ) -> "_Timed":
        with TemporaryDirectory() as folder:
            _write(Path(folder), hidden, layers)
            cpu = torch.device("cpu")
            llm = load_llm(Path(folder), _name(dtype), cpu, quantization)
        return cls(llm, (4 + 3) * hidden * hidden * layers + SMALL * hidden)

    def best(self, rows: int, clock: Callable[[], float]) -> float:
        """Return seconds of a pass over the nodes below one root."""
        cache = self.llm.new_cache(tokens=rows, page_size=16)
        sequence = cache.open([])
        cache.reserve(sequence, rows)
        planned = plan(cache, [Segment(sequence, [0] * rows, [-1] * rows, range(rows))])
        return _best(lambda: self.llm.forward(planned), clock)


def _write(folder: Path, hidden: int, layers: int) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    config = AutoConfig.for_model(
        "llama",
        vocab_size=SMALL,
        hidden_size=hidden,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
    )
    kind: Any = AutoModelForCausalLM
    kind.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


def _name(dtype: torch.dtype) -> DType:
    names: dict[torch.dtype, DType] = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
    return names.get(dtype, "float32")
