"""Round figures that can be checked in the head."""

import pytest

from specinfer.plan.capacity import Job
from specinfer.plan.machine import Device, Machine
from specinfer.plan.shape import ModelShape
from specinfer.plan.traffic import Traffic


@pytest.fixture
def llm() -> ModelShape:
    return ModelShape(
        name="llm",
        parameters=1_100,
        read=1_000,
        layers=10,
        heads=4,
        kv_heads=2,
        head_dim=8,
        hidden=32,
        vocab=100,
        context=4096,
    )


@pytest.fixture
def device() -> Device:
    return Device(name="card", memory=1e6, bandwidth=1e4, flops=1e5, layer_s=0.01, link=1e6)


@pytest.fixture
def machine(device: Device) -> Machine:
    return Machine(name="ml.g5.test", device=device, devices=1, usd=2.0, ec2_usd=1.5)


@pytest.fixture
def job(llm: ModelShape) -> Job:
    return Job(llm=llm, ssms=(), width=2.0, traffic=Traffic(prompt=16, new=8), rate=0.6)
