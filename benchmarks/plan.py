"""What `specinfer plan --here` says of this machine beside what the engine does on it.

Run: python benchmarks/plan.py [--model FOLDER] [--ssm FOLDER].  Rounds of measuring the machine and
running the engine take turns, and the best of each counts; times are CPU time, so one thread
(OMP_NUM_THREADS=1) is what it can judge, and other processes matter little.  The last column is
the estimate's error.
"""

import argparse
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from threading import Event

import torch

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.model_store import resolve_model
from specinfer.plan.capacity import prefill_s, step_s
from specinfer.plan.cost import Quantization, Served
from specinfer.plan.here import this_machine
from specinfer.plan.machine import Device
from specinfer.plan.shape import find_shape
from specinfer.request import Delta, SamplingParams

NEW, ROUNDS = 20, 3
CHAIN = TreeShape((1, 1, 1, 1))


@dataclass(frozen=True, slots=True)
class Case:
    """Equal requests on one engine, and what the plan says of a step and of the prompt."""

    name: str
    engine: Engine
    batch: int
    prompt: int
    step: Callable[[Device], float]
    prefill: Callable[[Device], float]

    def run(self, salt: int) -> tuple[float, float]:
        """Return seconds of the prompts and of the quickest tenth of the steps."""
        times: list[float] = []
        ended = [Event() for _ in range(self.batch)]
        params = SamplingParams(max_new_tokens=NEW, min_new_tokens=NEW, temperature=0.0)

        def watch(delta: Delta) -> None:
            times.append(time.process_time())

        started = time.process_time()
        for number, event in enumerate(ended):

            def sink(delta: Delta, number: int = number, event: Event = event) -> None:
                if number == 0:
                    watch(delta)
                if delta.stats is not None:
                    event.set()

            # Unequal beginnings: no prompt's pages serve another.
            tokens = [100 + salt * 10 + number, *range(100, 99 + self.prompt)]
            self.engine.submit(tokens, params, sink)
        for event in ended:
            event.wait()
        steps = sorted(b - a for a, b in zip(times, times[1:], strict=False))
        return times[0] - started, steps[len(steps) // 10]


def row(what: str, estimate: float, found: float) -> str:
    return f"{what:<48}{estimate * 1e3:>9.1f}{found * 1e3:>9.1f}{estimate / found - 1:>+8.0%}"


def best_device(devices: list[Device]) -> Device:
    return Device(
        name=devices[0].name,
        memory=devices[0].memory,
        bandwidth=max(d.bandwidth for d in devices),
        flops=max(d.flops for d in devices),
        layer_s=min(d.layer_s for d in devices),
    )


def cases(folder: Path, ssm: Path | None, dtype: str, bits: Quantization) -> list[Case]:
    width = float(getattr(torch, dtype).itemsize)
    llm, small = find_shape(str(folder)), find_shape(str(ssm or folder))

    def on(device: Device, shape=llm) -> Served:  # type: ignore[no-untyped-def]
        return Served(shape=shape, device=device, width=width, quantization=bits)

    def plain(batch: int, prompt: int) -> Case:
        context = prompt + NEW / 2
        return Case(
            f"plain, batch {batch}, prompt {prompt}",
            alone,
            batch,
            prompt,
            lambda device: step_s(on(device), [], batch, context, ()),
            lambda device: batch * prefill_s(on(device), prompt),
        )

    alone = Engine.load(EngineConfig(model=folder, dtype=dtype, quantization=bits, lookup=False))
    found = [plain(1, 64), plain(4, 64), plain(1, 512)]
    if ssm is not None:
        config = EngineConfig(
            model=folder,
            ssms=(ssm,),
            dtype=dtype,
            quantization=bits,
            lookup=False,
            adaptive=False,
            tree=CHAIN,
        )
        found.append(
            Case(
                f"SSM {ssm.name}, tree {CHAIN}",
                Engine.load(config),
                1,
                64,
                lambda d: step_s(on(d), [on(d, small)], 1, 64 + NEW / 2, CHAIN.widths),
                lambda d: (
                    prefill_s(on(d), 64)
                    + prefill_s(on(d, small), 64)
                    + step_s(on(d), [on(d, small)], 1, 64, CHAIN.widths)
                ),
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--ssm", type=Path)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--quantization", default="none")
    args = parser.parse_args()
    folder = resolve_model(args.model)
    told = cases(folder, args.ssm, args.dtype, args.quantization)
    devices, found = [], [(float("inf"), float("inf"))] * len(told)
    for turn in range(ROUNDS):
        dtype = getattr(torch, args.dtype)
        devices.append(this_machine(dtype, time.process_time, args.quantization).device)
        for number, case in enumerate(told):
            prefill, step = case.run(turn)
            found[number] = min(found[number][0], prefill), min(found[number][1], step)
    device = best_device(devices)
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, ", end="")
    print(
        f"torch {torch.__version__}, {args.dtype}, linears {args.quantization}, "
        f"{torch.get_num_threads()} threads"
    )
    print(f"this machine: {device.bandwidth / 1e9:.1f} GB/s, {device.flops / 1e9:.0f} Gflop/s, ")
    print(f"{device.layer_s * 1e3:.3f} ms a layer; best of {ROUNDS} rounds\n")
    print(
        f"{folder.name:<48}{'estimate':>9}{'measured':>9}{'error':>8}\n{'':<48}{'ms':>9}{'ms':>9}"
    )
    for case, (prefill, step) in zip(told, found, strict=True):
        print(row(f"step: {case.name}", case.step(device), step))
        print(row(f"first token: {case.name}", case.prefill(device), prefill))
        case.engine.close()


if __name__ == "__main__":
    main()
