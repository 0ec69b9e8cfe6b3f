"""Load on two model servers in turn, token trees against plain decoding, over HTTP and SSE.

Prints, for each concurrency and mode: time to first token and inter-token latency (p50/p95/p99),
tokens per second, goodput (requests within both limits, per second) and accepted tokens per step.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path

import httpx

from specinfer.model_store.store import resolve_model

PROMPTS = tuple(
    json.loads(line)["prompt"]
    for file in sorted((Path(__file__).parent / "prompts").glob("*.jsonl"))
    for line in file.read_text().splitlines()
)
WARM_UP = ("Say hello.", "Count to three.")
START_S = 300


@dataclass(slots=True)
class Sample:
    """One request.  Seconds from its arrival."""

    ttft: float = 0.0
    itl: list[float] = field(default_factory=list)
    total: float = 0.0
    tokens: int = 0
    accepted: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a server in one round."""

    prompts: tuple[str, ...]
    concurrency: int
    rate: float  # Poisson arrivals a second; 0: the next request when one ends
    max_new_tokens: int
    seed: int


async def ask(client: httpx.AsyncClient, prompt: str, tokens: int, arrived: float) -> Sample:
    """Stream one answer."""
    sample = Sample()
    body = {"inputs": prompt, "parameters": {"max_new_tokens": tokens}, "stream": True}
    last = arrived
    async with client.stream("POST", "/invocations", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line:
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise SystemExit(f"the server failed: {event['error']}")
            now = time.perf_counter()
            new = len(event["token"]["ids"])
            if new:
                note_tokens(sample, new, now - last)
                last = now
            if event["details"]:
                figures = event["details"]["speculation"]
                sample.accepted, sample.steps = figures["accepted"], figures["steps"]
    sample.total = time.perf_counter() - arrived
    return sample


def note_tokens(sample: Sample, new: int, waited: float) -> None:
    """Tokens of one step share its time; the first step's is the time to first token."""
    if sample.tokens:
        sample.itl += [waited / new] * new
    else:
        sample.ttft = waited
    sample.tokens += new


async def put(url: str, load: Load) -> tuple[list[Sample], float]:
    """Run one round; returns the samples and the seconds it took."""
    chance = random.Random(load.seed)
    places = asyncio.Semaphore(load.concurrency)
    limits = httpx.Limits(max_connections=load.concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:

        async def one(prompt: str, arrived: float | None) -> Sample:
            async with places:
                since = time.perf_counter() if arrived is None else arrived
                return await ask(client, prompt, load.max_new_tokens, since)

        began = time.perf_counter()
        tasks = []
        for prompt in load.prompts:
            if load.rate:
                await asyncio.sleep(chance.expovariate(load.rate))
            arrived = time.perf_counter() if load.rate else None
            tasks.append(asyncio.create_task(one(prompt, arrived)))
        samples = await asyncio.gather(*tasks)
    return samples, time.perf_counter() - began


@contextmanager
def server(model: Path, ssms: Sequence[Path], plain: bool, log: Path) -> Iterator[str]:
    """Start a server on a port of its own; yields its address once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"MODEL": str(model), "PORT": str(port), "HOST": "127.0.0.1"}
    settings |= {"LOOKUP": "false"} if plain else {"SSMS": ",".join(map(str, ssms))}
    environment = os.environ | {f"SPECINFER_{name}": value for name, value in settings.items()}
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "specinfer.server", "serve"]
    with log.open("w") as out, subprocess.Popen(command, env=environment, stderr=out) as process:
        try:
            await_ready(url, process, log)
            yield url
        finally:
            process.terminate()


def await_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/ping").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"a server did not start: {log.read_text()[-500:]}")


def percentiles(values: Sequence[float]) -> str:
    """Return p50/p95/p99 in milliseconds."""
    if len(values) < 2:
        return "-"
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return "/".join(f"{1e3 * cuts[at - 1]:.0f}" for at in (50, 95, 99))


def row(mode: str, load: Load, rounds: list[tuple[list[Sample], float]], slo: "Slo") -> str:
    samples = [sample for found, _ in rounds for sample in found]
    seconds = sum(spent for _, spent in rounds)
    good = sum(slo.met_by(sample) for sample in samples)
    steps = sum(sample.steps for sample in samples)
    itl = [each for sample in samples for each in sample.itl]
    return (
        f"{load.concurrency:4} {mode:6}{percentiles([s.ttft for s in samples]):>18}"
        f"{percentiles(itl):>15}{sum(s.tokens for s in samples) / seconds:9.1f}"
        f"{good / seconds:9.2f}{sum(s.accepted for s in samples) / max(steps, 1):9.2f}"
    )


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must keep to count as goodput.  Seconds."""

    ttft: float
    itl: float

    def met_by(self, sample: Sample) -> bool:
        return sample.ttft <= self.ttft and statistics.fmean(sample.itl or [0]) <= self.itl


def heading(args: argparse.Namespace) -> str:
    """Tell when, where and with what; load is what others ran on the machine before."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    again = max(args.requests * args.rounds * len(args.concurrency) - len(PROMPTS), 0)
    return (
        f"benchmarks/serve.py, {time.strftime('%Y-%m-%d')}, {args.model}, {os.cpu_count()} cores "
        f"({platform.machine()}), {threads} threads a server, load {load}\n"
        f"Python {platform.python_version()}, {versions}; {args.rounds} rounds of {args.requests} "
        f"requests of {args.max_new_tokens} tokens, {again} prompts asked again\n"
    )


def main() -> None:
    args = _parser().parse_args()
    model = resolve_model(args.model)
    slo = Slo(args.slo_ttft, args.slo_itl)
    logs = Path(tempfile.mkdtemp(prefix="specinfer-serve-"))
    with (
        server(model, args.ssm, False, logs / "tree") as tree,
        server(model, args.ssm, True, logs / "plain") as plain,
    ):
        for url in (tree, plain):  # what is measured on first use is not a load's affair
            asyncio.run(put(url, Load(WARM_UP, 2, 0, 16, 0)))
        print(heading(args))
        print(" conc mode   TTFT ms 50/95/99  ITL 50/95/99    tok/s  goodput acc/step")
        # A prompt asked twice has a drafter that remembers answers repeat the first one.
        prompts = cycle(random.Random(0).sample(PROMPTS, len(PROMPTS)))
        for concurrency in args.concurrency:
            rounds: dict[str, list[tuple[list[Sample], float]]] = {"tree": [], "plain": []}
            for number in range(args.rounds):
                asked = tuple(islice(prompts, args.requests))
                load = Load(asked, concurrency, args.rate, args.max_new_tokens, number)
                for mode, url in (("tree", tree), ("plain", plain)):
                    rounds[mode].append(asyncio.run(put(url, load)))
            for mode, found in rounds.items():
                print(row(mode, load, found, slo), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--ssm", type=Path, action="append", default=[])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--requests", type=int, default=16, help="a round")
    parser.add_argument("--rounds", type=int, default=2, help="of each server, in turn")
    parser.add_argument("--rate", type=float, default=0, help="Poisson arrivals a second")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--slo-ttft", type=float, default=2.0, help="seconds")
    parser.add_argument("--slo-itl", type=float, default=0.2, help="seconds")
    return parser


if __name__ == "__main__":
    main()
