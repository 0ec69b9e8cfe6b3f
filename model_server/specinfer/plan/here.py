"""This machine as a row of the table: bandwidth, arithmetic and fixed cost, measured now."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from specinfer.config import DType
from specinfer.lean import load_llm
from specinfer.llm import CausalLM
from specinfer.plan.cost import QUANTIZED, Quantization
from specinfer.plan.machine import USABLE, Device, Machine
from specinfer.tree_attention import Segment, plan

RUNS = 5  # of which the best counts: noise only ever adds
SMALL, FEW = 64, 2
LARGE, LAYERS = 1024, 12  # 88 M weights: no cache holds them
ROWS = 64  # bound by arithmetic


def this_machine(
    dtype: torch.dtype,
    clock: Callable[[], float] = time.perf_counter,
    quantization: Quantization = "none",
) -> Machine:
    """Measure the CPU for a few seconds, by passes as the engine runs them."""
    few, many, large = (
        _Timed.of(hidden, layers, quantization, dtype)
        for hidden, layers in ((SMALL, FEW), (SMALL, LAYERS), (LARGE, LAYERS))
    )
    layer_s = max(0.0, many.best(1, clock) - few.best(1, clock)) / (LAYERS - FEW)
    one, rows = (large.best(rows, clock) - LAYERS * layer_s for rows in (1, ROWS))
    width = QUANTIZED.get(quantization, dtype.itemsize)
    device = Device(
        name=f"CPU, {torch.get_num_threads()} threads",
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * USABLE,
        bandwidth=large.weights * width / one,
        flops=2 * ROWS * large.weights / rows,
        layer_s=layer_s,
    )
    return Machine(name="this machine", device=device, devices=1, usd=None, ec2_usd=None)


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
