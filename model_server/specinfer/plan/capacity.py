"""What one machine can do for the traffic: memory, batch, tree, tokens a second, latency."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from specinfer.config import EngineConfig
from specinfer.plan.cost import Offloading, Quantization, Served
from specinfer.plan.machine import Machine
from specinfer.plan.shape import ModelShape
from specinfer.plan.speculation import best_tree, nodes
from specinfer.plan.traffic import Traffic

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Per row of a prompt chunk: hidden states, projections and the feed-forward layer's inner rows.
ROW_COPIES = 20
# Per row of logits, float32: the logits, their law, and one copy of it.
LOGIT_COPIES = 3
_DEFAULTS = EngineConfig(model=Path())
PAGE = _DEFAULTS.page_size
PREFILL_ROWS = _DEFAULTS.prefill_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The models, and what is asked of them."""

    llm: ModelShape
    ssms: tuple[ModelShape, ...]
    width: float  # bytes a weight that is not quantized
    traffic: Traffic
    rate: float  # of acceptance
    quantization: Quantization = "none"  # of SSMs, and of an LLM that is not off-loaded
    offloading: Offloading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on each device."""

    weights: float
    ssms: float
    activations: float
    sequence: float  # cache pages and logits of one running sequence
    usable: float

    @property
    def room(self) -> float:
        """What is left for sequences; below 0 where not even the weights fit."""
        return self.usable - self.weights - self.ssms - self.activations

    @property
    def sequences(self) -> int:
        return max(0, int(self.room // self.sequence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One machine under full load, as well as it can be set up."""

    machine: Machine
    tp: int  # devices one copy of the model is split over
    memory: Memory
    batch: int
    tree: tuple[int, ...]
    free_rows: float
    tokens_a_step: float
    step_s: float
    first_token_s: float
    latency_s: float  # of a whole request, at this batch
    plain_latency_s: float  # ... and without speculation

    @property
    def copies(self) -> int:
        return self.machine.devices // self.tp

    @property
    def requests_s(self) -> float:
        """Requests a second of the whole machine (Little's law)."""
        return self.copies * self.batch / self.latency_s


def estimates(machine: Machine, job: Job) -> Iterator[Estimate]:
    """Yield every way to serve on the machine that its memory allows."""
    for tp in splits(machine, job):
        for batch in BATCHES:
            estimate = _estimate(machine, job, tp, batch)
            if estimate.memory.sequences < batch:
                break
            yield estimate


def splits(machine: Machine, job: Job) -> list[int]:
    """Return the numbers of devices the model can be split over: heads must divide.

    What is quantized or off-loaded is not split.
    """
    llm, whole = job.llm, job.quantization != "none" or job.offloading is not None
    return [
        tp
        for tp in range(1, 2 if whole else machine.devices + 1)
        if machine.devices % tp == 0 and llm.heads % tp == 0 and llm.kv_heads % tp == 0
    ]


def memory_of(job: Job, machine: Machine, tp: int, tree: Sequence[int] = ()) -> Memory:
    """Return the bytes on each device, for sequences as long as the traffic's."""
    llm, ssms = _served(job, machine, tp)
    rows = 1 + nodes(tree) * max(1, len(ssms))
    pages = -(-(job.traffic.tokens + rows) // PAGE)
    cached = sum(model.cache_bytes(pages * PAGE) for model in (llm, *ssms))
    chunk = PREFILL_ROWS * llm.shape.hidden * ROW_COPIES * llm.cache_width / tp
    return Memory(
        weights=llm.weight_bytes,
        ssms=sum(ssm.weight_bytes for ssm in ssms),
        activations=chunk,
        sequence=cached + rows * llm.shape.vocab * 4 * LOGIT_COPIES,
        usable=machine.device.memory,
    )


def _served(job: Job, machine: Machine, tp: int) -> tuple[Served, list[Served]]:
    def served(shape: ModelShape) -> Served:
        return Served(
            shape=shape, device=machine.device, width=job.width, quantization=job.quantization
        )

    llm = replace(served(job.llm), tp=tp)
    if job.offloading is not None:
        llm = replace(llm, quantization="none", offloading=job.offloading)
    return llm, [served(ssm) for ssm in job.ssms]


def _estimate(machine: Machine, job: Job, tp: int, batch: int) -> Estimate:
    llm, ssms = _served(job, machine, tp)
    context = job.traffic.prompt + job.traffic.new / 2
    step = partial(step_s, llm, ssms, batch, context)
    tree, tokens = best_tree(job.rate, step) if ssms else ((), 1.0)
    prefill = sum(prefill_s(model, job.traffic.prompt) for model in (llm, *ssms))
    return Estimate(
        machine=machine,
        tp=tp,
        memory=memory_of(job, machine, tp, tree),
        batch=batch,
        tree=tree,
        free_rows=llm.free_rows,
        tokens_a_step=tokens,
        step_s=step(tree),
        first_token_s=prefill + step(tree),
        # A request waits for every prompt that comes in beside its steps: `batch` of them.
        latency_s=batch * prefill + job.traffic.new / tokens * step(tree),
        plain_latency_s=batch * prefill_s(llm, job.traffic.prompt) + job.traffic.new * step(()),
    )


def step_s(
    llm: Served, ssms: Sequence[Served], batch: int, context: float, widths: Sequence[int]
) -> float:
    """Seconds of one step: each SSM grows its tree level by level, the LLM verifies them all.

    Layers of an off-loaded LLM come in while the SSMs draft, as far as there is room for them.
    """
    drafting = 0.0
    for level in range(len(widths)):
        rows = batch * max(1, nodes(widths[:level]))  # an SSM runs its whole tree at every level
        drafting += sum(ssm.pass_s(rows, batch, context) for ssm in ssms)
    verified = batch * (1 + nodes(widths) * max(1, len(ssms)))
    hidden = min(drafting, llm.ahead_s)
    return drafting - hidden + llm.pass_s(verified, batch, context)


def prefill_s(model: Served, prompt: int) -> float:
    """Seconds to read a prompt in chunks."""
    chunks = [min(PREFILL_ROWS, prompt - start) for start in range(0, prompt, PREFILL_ROWS)]
    return sum(
        model.pass_s(rows, 1, number * PREFILL_ROWS + rows / 2)
        for number, rows in enumerate(chunks)
    )
