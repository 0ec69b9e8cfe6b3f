"""An LLM that does not fit into memory: plain decoding against token trees over one copy on disk.

The process puts itself into a memory cgroup whose limit is below the size of the LLM's weights;
they are read past the page cache, so nobody else's can serve them either; the SSM stays resident.
Two engines share the off-loaded LLM and answer every prompt in alternating order.  Bytes read come
from /proc/self/io.  Needs root for the cgroup, and `specinfer models fetch` of both models.

    python benchmarks/offload.py --limit-gb 2.8 --tokens 24 --prompts 3
"""

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.model_store import resolve_model
from specinfer.offload import load_offloaded
from specinfer.offload.files import Reader, aligned
from specinfer.plan.capacity import step_s
from specinfer.plan.cost import Offloading, Served
from specinfer.plan.here import this_machine
from specinfer.plan.shape import find_shape
from specinfer.testing.ask import Asker

PROMPTS = Path(__file__).parent / "prompts" / "code.jsonl"
ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Group:
    """A memory cgroup of this process, version 1 or 2."""

    folder: Path
    limit: str
    peak: str

    @classmethod
    def below_own(cls) -> "Group":
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        own = {controllers: path.lstrip("/") for _, controllers, path in lines}
        name = f"specinfer-{os.getpid()}"
        if "memory" in own:
            folder = ROOT / "memory" / own["memory"] / name
            return cls(folder, "memory.limit_in_bytes", "memory.max_usage_in_bytes")
        return cls(ROOT / name, "memory.max", "memory.peak")

    @contextlib.contextmanager
    def entered(self, count: int) -> Iterator[None]:
        """Keep all that this process allocates and caches from now on below count bytes."""
        before = self.folder.parent / "cgroup.procs"
        self.folder.mkdir()
        try:
            (self.folder / self.limit).write_text(str(count))
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))
            yield
        finally:
            before.write_text(str(os.getpid()))
            self.folder.rmdir()

    def most(self) -> int:
        return int((self.folder / self.peak).read_text())


@dataclass(frozen=True)
class Run:
    """One answer."""

    tokens: list[int]
    seconds: float
    steps: int
    read: int  # bytes from the disk


def bytes_read() -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def answer(asker: Asker, prompt: str, tokens: int) -> Run:
    ids = asker.engine.encode_chat([{"role": "user", "content": prompt}])
    read, started = bytes_read(), time.perf_counter()
    got = asker(ids, max_new_tokens=tokens)
    seconds = time.perf_counter() - started
    assert got.last.stats is not None
    return Run(got.tokens, seconds, got.last.stats.steps, bytes_read() - read)


def disk_speed(model: Path) -> float:
    """Return the bytes a second at which a gigabyte of the weights is read with nothing beside."""
    reader, room = Reader(), aligned(1 << 26)
    file = max(model.glob("*.safetensors"), key=lambda file: file.stat().st_size)
    started = time.perf_counter()
    for part in range(16):
        reader.read(file, part << 26, room)
    seconds = time.perf_counter() - started
    reader.close()
    return (16 << 26) / seconds


def planned(args: argparse.Namespace, disk: float, context: float) -> tuple[float, float]:
    """Return what `specinfer plan` says a step takes, plain and with the whole tree."""
    llm = Served(
        shape=find_shape(str(resolve_model(args.llm))),
        device=this_machine(torch.bfloat16).device,
        width=2.0,
        offloading=Offloading("disk", disk, args.layers),
    )
    ssm = Served(
        shape=find_shape(str(resolve_model(args.ssm))),
        device=this_machine(torch.bfloat16, quantization=args.quantization).device,
        width=2.0,
        quantization=args.quantization,
    )
    widths = TreeShape.parse(args.tree).widths
    return step_s(llm, [ssm], 1, context, ()), step_s(llm, [ssm], 1, context, widths)


def line(name: str, runs: list[Run]) -> str:
    tokens, seconds = sum(len(r.tokens) for r in runs), sum(r.seconds for r in runs)
    steps, read = sum(r.steps for r in runs), sum(r.read for r in runs)
    return (
        f"{name:6} {tokens:5} tokens {seconds:7.1f} s {tokens / seconds:6.3f} tokens/s "
        f"{tokens / steps:5.2f} tokens a step {read / tokens / 1e9:6.3f} GB read a token"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--llm", default="qwen2.5-coder-1.5b-instruct")
    parser.add_argument("--ssm", default="qwen2.5-coder-0.5b-instruct")
    parser.add_argument("--limit-gb", type=float, default=2.8)
    parser.add_argument("--layers", type=int, default=6, help="layers in memory at a time")
    parser.add_argument("--tree", default="1,1,3,1,1,1,1,1")
    parser.add_argument(
        "--adaptive",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="trees by measured costs, as by default; else every node is verified",
    )
    parser.add_argument("--quantization", default="int8", help="of the resident SSM")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--skip", type=int, default=0, help="prompts left out at the beginning")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cgroup is removed even then
    group = Group.below_own()
    with group.entered(int(args.limit_gb * 1e9)):
        measure(args, group)


def measure(args: argparse.Namespace, group: Group) -> None:
    torch.set_num_threads(args.threads)
    model, small = resolve_model(args.llm), resolve_model(args.ssm)
    disk = disk_speed(model)
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    common = {"model": model, "dtype": "bfloat16", "offload": "disk", "cache_tokens": 1024}
    llm = load_offloaded(model, "bfloat16", torch.device("cpu"), "disk", slots=args.layers)
    plain = Asker(Engine.over(llm, EngineConfig(**common, lookup=False)))
    tree = TreeShape.parse(args.tree)
    settings = EngineConfig(
        **common,
        ssms=(small,),
        tree=tree,
        quantization=args.quantization,
        max_batch=1,
        adaptive=args.adaptive,
    )
    trees = Asker(Engine.over(llm, settings))
    prompts = [json.loads(text)["prompt"] for text in PROMPTS.read_text().splitlines()]
    pairs: list[tuple[Run, Run]] = []
    for place, prompt in enumerate(prompts[args.skip : args.skip + args.prompts]):
        order = (plain, trees) if place % 2 else (trees, plain)
        runs = {asker: answer(asker, prompt, args.tokens) for asker in order}
        pairs.append((runs[plain], runs[trees]))
    print(
        f"benchmarks/offload.py, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores "
        f"({platform.machine()}), {args.threads} threads, load "
        f"{' '.join(f'{one:.1f}' for one in os.getloadavg())}\n"
        f"Python {platform.python_version()}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}\nLLM {args.llm}: {weights / 1e9:.2f} GB on disk, "
        f"{args.layers} layers in memory at a time; SSM {args.ssm}, tree {tree}\n"
        f"memory limit {args.limit_gb} GB, most used {group.most() / 1e9:.2f} GB, page cache "
        f"included; temperature 0, {args.tokens} tokens, code prompts "
        f"{args.skip + 1} to {args.skip + len(pairs)}; "
        f"{'adaptive' if args.adaptive else 'fixed'} trees, SSM's linears {args.quantization}; "
        f"disk {disk / 1e9:.2f} GB/s alone\n"
    )
    print(line("plain", [run for run, _ in pairs]))
    print(line("tree", [run for _, run in pairs]))
    ratios = [(p.seconds / len(p.tokens)) / (t.seconds / len(t.tokens)) for p, t in pairs]
    print(
        f"tree/plain: {statistics.geometric_mean(ratios):.2f} "
        f"({', '.join(f'{ratio:.2f}' for ratio in ratios)} a prompt); same tokens in "
        f"{sum(p.tokens == t.tokens for p, t in pairs)} of {len(pairs)}"
    )
    for asker in (plain, trees):
        asker.engine.close()
    told = planned(args, disk, 64 + args.tokens / 2)
    for name, estimate, own in zip(("plain", "tree"), told, zip(*pairs, strict=True), strict=True):
        found = sum(run.seconds for run in own) / sum(run.steps for run in own)
        print(
            f"a step of {name}, as planned: {estimate:.2f} s, found {found:.2f} s with the prompt "
            f"({estimate / found - 1:+.0%})"
        )


if __name__ == "__main__":
    main()
