"""`specinfer plan`: which machine, how many, which tree, at what price."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specinfer.plan.errors import PlanError

if TYPE_CHECKING:
    from specinfer.plan.capacity import Job
    from specinfer.plan.cost import Offloading
    from specinfer.plan.machine import Machine
    from specinfer.plan.shape import ModelShape
    from specinfer.plan.speculation import Acceptance
    from specinfer.plan.traffic import Traffic

HELP = "estimate memory, speed and price on each instance type, and recommend a stack"
WIDTHS = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default="default",
        help="a folder with config.json (no weights are needed), a known name, or figures such as "
        "parameters=8e9,layers=32,heads=32,kv_heads=8,head_dim=128,vocab=128256,context=8192",
    )
    parser.add_argument(
        "--ssm", action="append", default=[], help="an SSM, told like --model; may be repeated"
    )
    parser.add_argument(
        "--traffic",
        default="",
        help="requests=REQUESTS/S,prompt=TOKENS,new=TOKENS,seconds=LIMIT, each optional",
    )
    parser.add_argument("--dtype", choices=WIDTHS, default="bfloat16", help="of the weights")
    parser.add_argument(
        "--quantization",
        choices=("none", "int8", "int4_weight_only"),
        default="none",
        help="of the linears of SSMs, and of an LLM that is not off-loaded",
    )
    parser.add_argument(
        "--offload", choices=("disk", "cpu"), help="where the LLM's layers come from in every pass"
    )
    parser.add_argument("--offload-gb-per-s", type=float, help="... and how fast")
    parser.add_argument(
        "--offload-layers", type=int, default=3, help="... and how many the device holds at a time"
    )
    accepted = parser.add_mutually_exclusive_group()
    accepted.add_argument(
        "--acceptance", type=float, help="chance that an SSM's first choice stands, 0 to 1"
    )
    accepted.add_argument(
        "--profile", type=Path, help="take it from a server's saved /metrics page"
    )
    parser.add_argument(
        "--instance", action="append", default=[], help="look at these types only; may be repeated"
    )
    parser.add_argument("--here", action="store_true", help="measure and plan for this machine")
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def run(args: argparse.Namespace) -> int:
    from specinfer.plan.choice import choose
    from specinfer.plan.report import Plan
    from specinfer.plan.shape import find_shape, find_ssm
    from specinfer.plan.traffic import Traffic

    traffic, acceptance = Traffic.parse(args.traffic), _acceptance(args)
    machines = _machines(args)
    llm = find_shape(args.model)
    job = replace(
        _job(
            llm,
            [find_ssm(ssm, llm) for ssm in args.ssm],
            WIDTHS[args.dtype],
            traffic,
            acceptance.rate,
        ),
        quantization=args.quantization,
        offloading=_offloading(args),
    )
    choices = choose(machines, job)
    fit = {choice.machine.name for choice in choices}
    plan = Plan(job, acceptance, choices, [m.name for m in machines if m.name not in fit])
    print(json.dumps(plan.document(), indent=2) if args.json else plan.text())
    return 0


def _job(
    llm: "ModelShape", ssms: "list[ModelShape]", width: float, traffic: "Traffic", rate: float
) -> "Job":
    from specinfer.plan.capacity import Job

    for ssm in ssms:
        if not 0.9 < ssm.vocab / llm.vocab < 1.1:
            raise PlanError(
                f"{ssm.name} has {ssm.vocab} tokens, {llm.name} {llm.vocab}: an SSM must share "
                "the LLM's tokenizer"
            )
    return Job(llm=llm, ssms=tuple(ssms), width=width, traffic=traffic, rate=rate)


def _offloading(args: argparse.Namespace) -> "Offloading | None":
    from specinfer.plan.cost import Offloading

    speed = args.offload_gb_per_s
    if args.offload is None:
        return None
    if speed is None or speed <= 0 or args.offload_layers < 1:
        raise PlanError(
            "offload: needs the speed of the disk or of PCIe (--offload-gb-per-s), and at least "
            "1 layer on the device"
        )
    return Offloading(args.offload, speed * 1e9, args.offload_layers)


def _acceptance(args: argparse.Namespace) -> "Acceptance":
    from specinfer.plan.speculation import ASSUMED, Acceptance, read_profile

    if args.profile is not None:
        return read_profile(args.profile)
    if args.acceptance is None:
        return Acceptance(ASSUMED, "assumed")
    if not 0 <= args.acceptance < 1:
        raise PlanError(f"acceptance: must be at least 0 and below 1, got {args.acceptance:g}")
    return Acceptance(args.acceptance, "given")


def _machines(args: argparse.Namespace) -> "list[Machine]":
    from specinfer.plan.machine import known_machines

    if args.here:
        import torch

        from specinfer.plan.here import this_machine

        return [this_machine(getattr(torch, args.dtype), quantization=args.quantization)]
    known = {machine.name: machine for machine in known_machines()}
    unknown = sorted(set(args.instance) - known.keys())
    if unknown:
        raise PlanError(f"no instance type {', '.join(unknown)}; known: {', '.join(known)}")
    return [known[name] for name in args.instance] or list(known.values())
