"""Where the GPU suite runs and how large its cases are: a card, or a dry run on a CPU."""

import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specinfer.config import TreeShape
from specinfer.errors import first_line

WARM_UPS = 3
Heads = tuple[int, int, int]
Check = tuple[list[int], list[int], Heads, float | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A device and the sizes of everything that is measured on it."""

    device: str
    backend: str  # of our kernels
    heads: Heads  # query heads, key/value heads, width
    contexts: tuple[int, ...]  # the goals' own first, should time run out
    rows: tuple[int, ...]
    requests: tuple[int, ...]
    checks: tuple[Check, ...]  # contexts, rows, heads, softcap, window
    commit: tuple[int, int, int]  # layers, slots of a layer, slots that are moved
    flush: int  # bytes whose reading empties the card's cache
    flushes: int  # before a timed call
    copied: int  # bytes of the copy that measures bandwidth
    llm: dict[str, int]
    ssm: dict[str, int]
    dtype: torch.dtype
    batches: tuple[int, ...]
    prompt: int  # tokens
    answer: int  # tokens of each that is checked
    steps: int  # timed, after as many that are not
    tree: TreeShape
    rounds: int  # of each timed call
    vocabularies: tuple[int, ...]

    @property
    def dry(self) -> bool:
        return self.device == "cpu"


def shape(vocab: int, hidden: int, inner: int, layers: int, heads: int) -> dict[str, int]:
    """Return a Llama's configuration."""
    return {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": 4096,
    }


CARD = Rig(
    device="cuda",
    backend="triton",
    heads=(32, 8, 128),
    contexts=(4096, 1024, 16384, 512, 32768),
    rows=(1, 32, 8, 64, 128),
    requests=(1, 8, 32),
    checks=(
        ([37], [1], (32, 32, 64), None, None),
        ([0, 700, 33], [20, 1, 65], (6, 2, 80), None, None),
        ([5], [200], (4, 4, 96), None, None),
        ([4000, 17], [32, 8], (32, 8, 128), None, None),
        ([900], [64], (28, 4, 128), None, 256),
        ([2000, 3], [32, 9], (8, 4, 256), 50.0, 1024),
    ),
    commit=(32, 4096, 512),
    flush=256 << 20,
    flushes=8,  # half a millisecond on an H200: the host launches the timed call meanwhile
    copied=256 << 20,
    llm=shape(32000, 4096, 11008, 32, 32),  # LLaMA-7B
    ssm=shape(32000, 768, 3072, 2, 12),  # LLaMA-68M
    dtype=torch.bfloat16,
    batches=(1, 8, 32),
    prompt=512,
    answer=12,
    steps=20,
    tree=TreeShape((1, 1, 3, 1, 1, 1, 1, 1)),  # the paper's: 20 nodes
    rounds=10,
    vocabularies=(128256, 32000, 151936),  # Llama-3, LLaMA, Qwen
)

# Every path of the suite, by Triton's interpreter and sizes that it gets through in seconds.
DRY = Rig(
    device="cpu",
    backend="triton",
    heads=(4, 2, 64),
    contexts=(16,),
    rows=(1, 5),
    requests=(2,),
    checks=(([9, 0], [5, 1], (4, 2, 64), None, None), ([20], [3], (2, 1, 64), 50.0, 8)),
    commit=(2, 64, 9),
    flush=1 << 10,
    flushes=1,
    copied=1 << 20,
    llm=shape(97, 64, 96, 2, 4),
    ssm=shape(97, 32, 48, 1, 2),
    dtype=torch.float32,
    batches=(2,),
    prompt=4,
    answer=4,
    steps=1,
    tree=TreeShape((2, 1)),
    rounds=1,
    vocabularies=(67,),
)


@dataclass(frozen=True, slots=True)
class Until:
    """When no further case may begin; the suite's parts have one each."""

    deadline: float  # by time.monotonic

    @property
    def over(self) -> bool:
        return time.monotonic() > self.deadline

    def share(self, part: float) -> "Until":
        """Return the end of a part of the time that is left."""
        now = time.monotonic()
        return Until(now + part * max(0.0, self.deadline - now))

    def leaves_out(self, what: str, begun: int, cases: int) -> bool:
        """Tell, and print, whether time is up before the case that comes after `begun`."""
        if self.over:
            print(f"time is up: {what}: {cases - begun} of {cases} left out", flush=True)
        return self.over


@dataclass(frozen=True, slots=True)
class Clock:
    """Times calls; a card's cache is emptied before each, as a model's other layers do.

    By reading: lines written over would have to be written back beside what is timed.  While the
    card reads, the host launches what is timed: of a launch no time counts, as of a
    CUDA graph's none would.
    """

    flush: Tensor
    flushes: int
    rounds: int

    @classmethod
    def of(cls, rig: Rig) -> "Clock":
        flush = torch.zeros(rig.flush // 4, device=rig.device)
        return cls(flush, rig.flushes, rig.rounds)

    def least(self, call: Callable[[], object]) -> float:
        """Return the least seconds of some rounds."""
        for _ in range(min(WARM_UPS, self.rounds)):
            call()
        return min(self._once(call) for _ in range(self.rounds))

    def _once(self, call: Callable[[], object]) -> float:
        for _ in range(self.flushes):
            self.flush.sum()
        if self.flush.device.type == "cpu":
            started = time.perf_counter()
            call()
            return time.perf_counter() - started
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def copy_bandwidth(rig: Rig, clock: Clock) -> float:
    """Return the bytes a second that the device reads and writes as it copies."""
    source = torch.zeros(rig.copied, dtype=torch.uint8, device=rig.device)
    target = torch.empty_like(source)
    return 2 * rig.copied / clock.least(lambda: target.copy_(source))


def attempt(what: str, call: Callable[[], int | None]) -> int:
    """Return the failures of a part; one that ends in an error is one, and the others go on."""
    try:
        return call() or 0
    except Exception as error:
        traceback.print_exc()
        print(f"check FAILS {what}: {type(error).__name__}: {first_line(error)}", flush=True)
        return 1


def lacking(what: str, error: Exception) -> None:
    """Say what a machine or its libraries cannot do."""
    print(f"left out: {what}: {first_line(error)}", file=sys.stderr, flush=True)


def wait(rig: Rig) -> None:
    """Let the device finish."""
    if not rig.dry:
        torch.cuda.synchronize()
