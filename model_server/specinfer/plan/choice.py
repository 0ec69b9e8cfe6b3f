"""Which machines meet the traffic, how many, for how much; and which stack that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from specinfer.plan.capacity import Estimate, Job, estimates, memory_of, splits
from specinfer.plan.errors import PlanError
from specinfer.plan.machine import Machine
from specinfer.plan.traffic import Traffic

# Of its capacity, what a machine is given: queues grow without bound towards 1.
LOAD = 0.7
HOURS = 730  # a month's, as AWS counts
MEDIUM_INSTANCES = 4  # the medium stack's default limit
# What the stacks start: the image's kernels are compiled for these.
FAMILIES = ("ml.g5.", "ml.g6.")

Stack = Literal["small", "medium", "large"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One instance type, set up for the traffic."""

    peak: Estimate  # the most it can do within the time allowed
    usual: Estimate  # the smallest batch that keeps up with the traffic
    traffic: Traffic

    @property
    def machine(self) -> Machine:
        return self.peak.machine

    @property
    def instances(self) -> int:
        return _needed(self.peak, self.traffic)

    @property
    def usd_an_hour(self) -> float | None:
        return None if self.machine.usd is None else self.machine.usd * self.instances

    @property
    def usd_a_million(self) -> float | None:
        """Price of a million generated tokens at this traffic, idle time paid for."""
        return self._million(self.usd_an_hour, self.traffic.requests)

    @property
    def usd_a_million_busy(self) -> float | None:
        """The same with every machine as busy as it is planned to be at most."""
        return self._million(self.machine.usd, LOAD * self.peak.requests_s)

    @property
    def stack(self) -> Stack | None:
        """The Terraform stack that is this: one device, a few instances, a fleet, or none."""
        if not self.machine.name.startswith(FAMILIES):
            return None
        if self.instances == 1 and self.machine.devices == 1:
            return "small"
        return "medium" if self.instances <= MEDIUM_INSTANCES else "large"

    def _million(self, hourly: float | None, requests_s: float) -> float | None:
        return hourly and hourly / (requests_s * self.traffic.new * 3600) * 1e6


def choose(machines: Sequence[Machine], job: Job) -> list[Choice]:
    """Return what meets the traffic, cheapest first; raises PlanError where nothing does."""
    _check_context(job)
    ways = [way for machine in machines for way in estimates(machine, job)]
    if not ways:
        raise PlanError(_too_large(machines, job))
    quick = [way for way in ways if way.latency_s <= job.traffic.seconds]
    if not quick:
        raise PlanError(_too_slow(ways, job.traffic))
    names = dict.fromkeys(way.machine.name for way in quick)
    choices = [_choice([way for way in quick if way.machine.name == n], job.traffic) for n in names]
    return sorted(choices, key=lambda choice: (choice.usd_an_hour or 0.0, choice.instances))


def _choice(ways: Sequence[Estimate], traffic: Traffic) -> Choice:
    """Split a model over more devices only where that gains."""
    peak = max(ways, key=lambda way: (way.requests_s, -way.tp))
    count = _needed(peak, traffic)
    enough = [way for way in ways if way.tp == peak.tp and _needed(way, traffic) <= count]
    return Choice(peak, min(enough, key=lambda way: way.batch), traffic)


def _needed(way: Estimate, traffic: Traffic) -> int:
    return ceil(traffic.requests / (LOAD * way.requests_s))


def _check_context(job: Job) -> None:
    shortest = min((job.llm, *job.ssms), key=lambda shape: shape.context)
    if job.traffic.tokens > job.llm.context:
        raise PlanError(
            f"prompt and answer are {job.traffic.tokens} tokens, the context of {job.llm.name} "
            f"holds {job.llm.context}: shorten them, or take a model of longer context"
        )
    if job.traffic.tokens > shortest.context:
        raise PlanError(
            f"{shortest.name} holds {shortest.context} tokens of the traffic's "
            f"{job.traffic.tokens}; beyond them it cannot draft: take another SSM, or none"
        )


def _too_large(machines: Sequence[Machine], job: Job) -> str:
    def lacking(machine: Machine) -> float:
        memory = memory_of(job, machine, max(splits(machine, job)))
        return memory.sequence - memory.room

    nearest = min(machines, key=lacking)
    tp = max(splits(nearest, job))
    memory = memory_of(job, nearest, tp)
    needed = memory.weights + memory.ssms + memory.activations + memory.sequence
    text = (
        f"{job.llm.name} does not fit: on {nearest.name}, split over {tp} of {nearest.devices} "
        f"devices, each needs {needed / 1e9:.1f} GB for {memory.weights / 1e9:.1f} GB of weights "
        f"and one sequence, and has {memory.usable / 1e9:.1f} GB."
    )
    if tp < nearest.devices and job.quantization == "none" and job.offloading is None:
        text += f" {job.llm.heads} query and {job.llm.kv_heads} KV heads split no further."
    return f"{text} {_smaller(job, needed, memory.usable)}"


def _smaller(job: Job, needed: float, usable: float) -> str:
    if job.width > 2:
        return "What would do: bfloat16 weights, half the size (--dtype bfloat16)."
    if job.quantization == "none" and job.offloading is None:
        return (
            f"What would do: devices of {needed / usable:.1f} times the memory, a smaller model, "
            "a shorter prompt, fewer bits (--quantization), or off-loading (--offload)."
        )
    return (
        f"What would do: devices of {needed / usable:.1f} times the memory, "
        "a smaller model, or a shorter prompt."
    )


def _too_slow(ways: Sequence[Estimate], traffic: Traffic) -> str:
    fastest = min(ways, key=lambda way: way.latency_s)
    fixed = fastest.first_token_s
    a_token = (fastest.latency_s - fixed) / traffic.new
    room = int((traffic.seconds - fixed) / a_token)
    text = (
        f"no machine answers in {traffic.seconds:g} s: the fastest, {fastest.machine.name}, takes "
        f"{fastest.latency_s:.2f} s for {traffic.prompt} prompt and {traffic.new} new tokens."
    )
    if room >= 1:
        return f"{text} What would do: at most {room} new tokens, a smaller model or more time."
    return f"{text} What would do: a shorter prompt, a smaller model, or more time."
