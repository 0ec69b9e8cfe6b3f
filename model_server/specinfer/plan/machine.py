"""Instance types: devices, their speed, and dated prices, from one committed table."""

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

# What of a data sheet's peak a pass attains.  Assumed, not measured on these cards: a matrix
# times a few rows streams about three quarters of the bandwidth, matrix products of hundreds of
# rows half of the arithmetic.
BANDWIDTH_SHARE = 0.75
FLOPS_SHARE = 0.5
# Launching one layer's kernels from Python, also assumed; a graph would need less.
GPU_LAYER_S = 100e-6
ALL_REDUCE_S = 20e-6  # latency of one, by NCCL on one instance
# Of a device's memory: driver, allocator, captured graphs, fragmentation.
USABLE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator, or a CPU; speeds are those that a pass attains."""

    name: str
    memory: float  # bytes
    bandwidth: float  # bytes a second
    flops: float  # multiplications and additions a second, bfloat16
    layer_s: float  # fixed cost of one layer of one pass
    link: float | None = None  # bytes a second between devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An instance type; prices are USD an hour, None where there is none."""

    name: str
    device: Device
    devices: int
    usd: float | None  # SageMaker hosting, us-east-1, on demand
    ec2_usd: float | None  # the same machine as a node of the large stack
    price_read: str | None = None
    price_source: str | None = None
    price_verified: bool = False  # two independent copies of the price list agree


def known_machines() -> list[Machine]:
    """Return the table's instance types, cheapest first within a family."""
    text = resources.files("specinfer.plan").joinpath("machines.json").read_text()
    table: dict[str, Any] = json.loads(text)
    devices = {name: _device(name, row) for name, row in table["devices"].items()}
    return [_machine(row, devices, table["sources"]) for row in table["instances"]]


def _device(name: str, row: dict[str, float]) -> Device:
    return Device(
        name=name,
        memory=row["memory_mib"] * 2**20 * USABLE,
        bandwidth=row["gb_per_s"] * 1e9 * BANDWIDTH_SHARE,
        flops=row["bf16_tflops"] * 1e12 * FLOPS_SHARE,
        layer_s=GPU_LAYER_S,
        link=row["link_gb_per_s"] * 1e9,
    )


def _machine(row: dict[str, Any], devices: dict[str, Device], sources: dict[str, str]) -> Machine:
    return Machine(
        name=row["type"],
        device=devices[row["device"]],
        devices=row["count"],
        usd=row["usd"],
        ec2_usd=row["ec2_usd"],
        price_read=row["read"],
        price_source=sources[row["source"]],
        price_verified=row["verified"],
    )
