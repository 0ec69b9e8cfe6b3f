"""Memory, batch, instances, price and stack, and what is refused with its reason."""

from dataclasses import replace

import pytest

from specinfer.plan.capacity import Job, estimates, memory_of, splits, step_s
from specinfer.plan.choice import LOAD, choose
from specinfer.plan.cost import Offloading, Served
from specinfer.plan.errors import PlanError
from specinfer.plan.machine import Device, Machine, known_machines
from specinfer.plan.shape import ModelShape, find_shape
from specinfer.plan.traffic import Traffic


def at(job: Job, **changes: float) -> Job:
    return replace(job, traffic=replace(job.traffic, **changes))


def test_memory_adds_up(job: Job, machine: Machine) -> None:
    memory = memory_of(job, machine, 1)
    assert memory.weights == 2_200
    assert memory.activations == 512 * 32 * 20 * 2
    pages = 2  # of 16, for 16 + 8 tokens and the root's row
    assert memory.sequence == pages * 16 * (2 * 10 * 2 * 8) * 2 + 100 * 4 * 3
    assert memory.sequences == int((1e6 - 2_200 - 655_360) // memory.sequence)


def test_no_batch_is_larger_than_what_fits(job: Job, machine: Machine) -> None:
    found = list(estimates(machine, job))
    assert max(way.batch for way in found) <= found[0].memory.sequences


def test_heads_have_to_divide(job: Job, machine: Machine) -> None:
    assert splits(replace(machine, devices=8), job) == [1, 2]
    assert splits(replace(machine, devices=8), replace(job, llm=find_shape("llama-7b"))) == [
        1,
        2,
        4,
        8,
    ]


def test_what_is_quantized_or_off_loaded_is_not_split(job: Job, machine: Machine) -> None:
    four = replace(machine, devices=4)
    assert splits(four, replace(job, quantization="int8")) == [1]
    assert splits(four, replace(job, offloading=Offloading("cpu", 1e3, 3))) == [1]


def test_drafting_hides_behind_layers_that_come_in(job: Job, machine: Machine) -> None:
    """Of 20 s a pass two tenths may come before it begins; the SSM's passes take 0.3 s each."""
    ssm = Served(shape=job.llm, device=machine.device, width=2.0)
    shape = replace(job.llm, vocab=1)
    llm = replace(ssm, shape=shape, offloading=Offloading("disk", 96.8, 2))
    assert llm.pass_s(5) == pytest.approx(20)
    assert step_s(llm, [ssm], 1, 0, (1, 1)) == pytest.approx(20)
    assert step_s(llm, [ssm] * 10, 1, 0, (1, 1)) == pytest.approx(20 + 10 * 2 * 0.3 - 4)


def test_little_s_law_gives_the_rate(job: Job, machine: Machine) -> None:
    way = next(way for way in estimates(machine, job) if way.batch == 4)
    assert way.requests_s == pytest.approx(4 / way.latency_s)


def test_instances_and_prices(job: Job, machine: Machine) -> None:
    (choice,) = choose([machine], at(job, requests=3, seconds=60))
    needed = 3 / (LOAD * choice.peak.requests_s)
    assert choice.instances - 1 < needed <= choice.instances
    assert choice.usd_an_hour == 2.0 * choice.instances
    assert choice.usd_a_million == pytest.approx(2.0 * choice.instances / (3 * 8 * 3600) * 1e6)


def test_the_usual_batch_is_the_smallest_that_keeps_up(job: Job, machine: Machine) -> None:
    (idle,) = choose([machine], at(job, requests=0.01, seconds=60))
    (busy,) = choose([machine], at(job, requests=0.7 * LOAD, seconds=60))
    assert idle.usual.batch == 1 < idle.peak.batch
    assert idle.usual.latency_s <= busy.usual.latency_s


def test_the_stack_follows_the_size() -> None:
    machines = [machine for machine in known_machines() if machine.name == "ml.g5.xlarge"]
    base = Job(
        llm=find_shape("llama-7b"),
        ssms=(find_shape("llama-68m"),),
        width=2.0,
        traffic=Traffic(seconds=20),
        rate=0.6,
    )
    stacks = [choose(machines, at(base, requests=rate))[0].stack for rate in (1, 4, 40)]
    assert stacks == ["small", "medium", "large"]


def test_instances_that_no_stack_starts_are_told_apart() -> None:
    machines = [machine for machine in known_machines() if machine.name == "ml.p5.48xlarge"]
    job = Job(llm=find_shape("llama-7b"), ssms=(), width=2.0, traffic=Traffic(), rate=0.6)
    assert choose(machines, job)[0].stack is None


def test_speculation_helps_a_large_model_most_when_it_is_alone() -> None:
    machines = [machine for machine in known_machines() if machine.name == "ml.g5.xlarge"]
    job = Job(
        llm=find_shape("llama-7b"),
        ssms=(find_shape("llama-68m"),),
        width=2.0,
        traffic=Traffic(),
        rate=0.6,
    )
    gains = [way.plain_latency_s / way.latency_s for way in estimates(machines[0], job)]
    assert gains[0] > 2 and gains == sorted(gains, reverse=True)


def test_a_context_that_is_too_short_is_refused(job: Job, machine: Machine) -> None:
    with pytest.raises(PlanError, match="4104 tokens, the context of llm holds 4096: shorten"):
        choose([machine], at(job, prompt=4096))


def test_an_ssm_of_shorter_context_is_refused(job: Job, machine: Machine, llm: ModelShape) -> None:
    short = replace(llm, name="ssm", context=20)
    with pytest.raises(PlanError, match="ssm holds 20 tokens .* take another SSM, or none"):
        choose([machine], replace(job, ssms=(short,)))


def test_a_model_that_fits_nowhere_is_refused(job: Job, machine: Machine, device: Device) -> None:
    narrow = replace(machine, devices=4, device=replace(device, memory=1e5))
    with pytest.raises(PlanError, match=r"does not fit: .*4 query and 2 KV heads split no further"):
        choose([narrow], job)


def test_too_little_time_is_refused_with_what_would_do(job: Job, machine: Machine) -> None:
    with pytest.raises(PlanError, match=r"fastest, ml.g5.test, .* at most 4 new tokens"):
        choose([machine], at(job, seconds=10))


def test_traffic_is_read_and_checked() -> None:
    assert Traffic.parse("requests=2, new=64") == Traffic(requests=2, new=64)
    for text, told in (("rate=2", "'rate' is not one of"), ("new=0", "new must be a number above")):
        with pytest.raises(PlanError, match=told):
            Traffic.parse(text)


def test_every_price_has_a_date_and_a_source() -> None:
    machines = known_machines()
    assert {"ml.g5.xlarge", "ml.g5.48xlarge", "ml.g6e.xlarge", "ml.p4d.24xlarge"} <= {
        machine.name for machine in machines
    }
    for machine in machines:
        assert machine.usd and machine.price_read and machine.price_source, machine
        assert machine.ec2_usd and machine.ec2_usd < machine.usd
