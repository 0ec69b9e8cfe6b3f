"""Our engine beside transformers and llama.cpp: same machine, weights, prompts and threads.

Every prompt is answered by each contender in turn (A B C A B C …), each in a process of its own
that sleeps while the others run; what is told are medians with minimum and maximum, and ratios
within one prompt.  llama.cpp takes part where llama-cpp-python is installed and --gguf names the
weights; assisted generation where --ssm names a smaller model, with which our trees are drafted
then, too.  Greedy, one request at a time.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from peer_report import draw, summary, table

from specinfer.model_store import resolve_model
from specinfer.model_store.pools import resolve_ssms
from specinfer.ssm import is_borrowing
from specinfer.tokenizer import Tokenizer

HERE = Path(__file__).parent
BATCHES = 3  # rounds of prompts eight at a time
CONTENDERS = (
    "ours plain int8",
    "ours tree int8",
    "ours plain bf16",
    "ours tree bf16",
    "transformers",
    "transformers lookup",
    "transformers assisted",
    "llama.cpp",
    "llama.cpp lookup",
)


class Worker:
    """A contender's process."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        command = [sys.executable, str(HERE / "peer_worker.py"), name, "--model", str(args.model)]
        command += [word for ssm in args.ssm for word in ("--ssm", str(ssm))]
        command += ["--gguf", str(args.gguf)] if args.gguf else []
        command += ["--threads", str(args.threads)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if args.verbose else subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(args.threads)},
        )
        self.load_s: float = self._read()["load_s"]

    def __call__(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(
            json.dumps({"prompts": prompts, "tokens": tokens}), file=self._process.stdin, flush=True
        )
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a contender ended: {' '.join(self._process.args)}")  # type: ignore[arg-type]
        return dict(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def taking_part(args: argparse.Namespace) -> list[str]:
    """Leave out, with a line, who cannot take part."""
    out = {}
    if args.gguf is None or find_spec("llama_cpp") is None:
        out |= dict.fromkeys(CONTENDERS[-2:], "needs llama-cpp-python and --gguf")
    if not args.ssm or is_borrowing(args.ssm[0]):
        out["transformers assisted"] = "needs --ssm, a whole model"
    for name, reason in out.items():
        print(f"left out: {name}: {reason}")
    return [name for name in args.contenders or CONTENDERS if name not in out]


def speeds(workers: dict[str, Worker], prompts: list[list[int]], tokens: int) -> dict[str, Any]:
    """Answer each prompt by everyone in turn; return tokens a second, in the prompts' order."""
    found: dict[str, list[float]] = {name: [] for name in workers}
    answers: dict[str, list[list[int]]] = {name: [] for name in workers}
    for place, prompt in enumerate(prompts):
        order = [*workers][place % len(workers) :] + [*workers][: place % len(workers)]
        for name in order:
            result = workers[name]([prompt], tokens)
            found[name].append(len(result["tokens"][0]) / result["seconds"])
            answers[name] += result["tokens"]
    return {"tokens_per_s": found, "answers": answers}


def first_token(workers: dict[str, Worker], prompts: list[list[int]]) -> dict[str, Any]:
    """Seconds to the first token of prompts that nobody has seen before."""
    found: dict[str, list[float]] = {name: [] for name in workers}
    for prompt in prompts:
        for name, worker in workers.items():
            found[name].append(worker([prompt], 1)["seconds"])
    rows = {name: summary(values) for name, values in found.items()}
    print(f"\nseconds to the first token after {len(prompts[0])} (min-max)")
    for name, row in rows.items():
        print(f"{name:<22}{row['median']:7.3f} ({row['min']:.3f}-{row['max']:.3f})")
    return rows


def batch(workers: dict[str, Worker], prompts: list[list[int]], tokens: int) -> dict[str, Any]:
    """Ours only: all prompts at once, of which eight are answered at a time, tree against plain."""
    found: dict[str, list[float]] = {name: [] for name in workers if name.startswith("ours")}
    for _ in range(BATCHES):
        for name in found:
            result = workers[name](prompts, tokens)
            found[name].append(sum(map(len, result["tokens"])) / result["seconds"])
    return table(f"{len(prompts)} chats, 8 at a time", found)


def package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def measure(
    workers: dict[str, Worker], ids: dict[str, list[list[int]]], args: argparse.Namespace
) -> dict[str, Any]:
    for worker in workers.values():
        worker([ids["chat"][-1]], 8)
    rows, answers = {}, {}
    for name, prompts in ids.items():
        measured = speeds(workers, prompts[: args.count], args.tokens)
        rows[name] = table(name, measured["tokens_per_s"])
        answers[name] = measured["answers"]
    if args.speeds:
        return {"sets": rows, "equal": tell_equal(answers)}
    stream = [token for own in ids.values() for prompt in own for token in prompt]
    long = [list(islice(cycle(stream[97 * i :]), 512)) for i in range(3)]
    ttft = first_token(workers, long)
    eight = batch(workers, ids["chat"][:16], args.tokens)
    peaks = {name: worker([ids["chat"][0]], 1)["peak_mb"] for name, worker in workers.items()}
    print("\npeak memory, MB, and seconds to load")
    for name, peak in peaks.items():
        print(f"{name:<22}{peak:7.0f} {workers[name].load_s:7.1f}")
    same = tell_equal(answers)
    return {"sets": rows, "ttft_s": ttft, "eight": eight, "peak_mb": peaks, "equal": same}


def tell_equal(answers: dict[str, dict[str, list[list[int]]]]) -> dict[str, str]:
    """Print and return how many answers two contenders have in common."""
    pairs = (
        ("ours tree int8", "ours plain int8"),
        ("ours tree bf16", "ours plain bf16"),
        ("ours plain bf16", "transformers"),
    )
    there = set.intersection(*map(set, answers.values()))
    same = {f"{a} = {b}": equal(answers, a, b) for a, b in pairs if {a, b} <= there}
    print(f"\nequal answers: {same}")
    return same


def equal(answers: dict[str, dict[str, list[list[int]]]], one: str, other: str) -> str:
    pairs = [p for own in answers.values() for p in zip(own[one], own[other], strict=True)]
    return f"{sum(a == b for a, b in pairs)} of {len(pairs)}"


def machine(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "date": time.strftime("%F"),
        "machine": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        "versions": {name: package(name) for name in ("torch", "transformers", "llama-cpp-python")},
        "settings": vars(args),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--ssm", action="append", default=[], help="name or folder; none")
    parser.add_argument("--gguf", type=Path, help="the same weights for llama.cpp")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS)
    parser.add_argument("--count", type=int, default=12, help="prompts a set")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--speeds", action="store_true", help="no first token, batch or memory")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write FILE.json and, with matplotlib, FILE.png")
    parser.add_argument("--verbose", action="store_true", help="let the contenders' stderr through")
    args = parser.parse_args()
    args.ssm = resolve_ssms(args.ssm, args.model)
    args.model = resolve_model(args.model)
    tokenizer = Tokenizer(args.model)
    texts = {
        name: [
            json.loads(line)["prompt"]
            for line in (HERE / "prompts" / f"{name}.jsonl").read_text().splitlines()
        ]
        for name in ("code", "chat")
    }
    ids = {
        name: [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in own]
        for name, own in texts.items()
    }
    workers = {name: Worker(name, args) for name in taking_part(args)}
    document = machine(args) | measure(workers, ids, args)
    if args.out:
        text = json.dumps(document, indent=2, default=str) + "\n"
        args.out.with_suffix(".json").write_text(text)
        if find_spec("matplotlib"):
            draw(document["sets"], args.out.with_suffix(".png"))
        else:
            print("no PNG: matplotlib is not installed")
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    main()
