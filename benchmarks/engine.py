"""Plain decoding against token trees: same model, same prompts, one paired run, as ratios.

Two engines share one process; every prompt is answered by both, in alternating order, so that a
machine that slows down slows both.  `specinfer models fetch default` first saves the wait.
"""

import argparse
import json
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.model_store import resolve_model
from specinfer.testing.ask import Asker

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class Run:
    """One answer: tokens, seconds, and what the engine counted."""

    tokens: list[int]
    seconds: float
    tokens_per_step: float

    @property
    def speed(self) -> float:
        return len(self.tokens) / self.seconds


def answer(asker: Asker, prompt: str, args: argparse.Namespace) -> Run:
    ids = asker.engine.encode_chat([{"role": "user", "content": prompt}])
    started = time.perf_counter()
    got = asker(ids, max_new_tokens=args.tokens, temperature=args.temperature, seed=args.seed)
    stats = got.last.stats
    assert stats is not None
    return Run(got.tokens, time.perf_counter() - started, stats.tokens_per_step)


def compare(
    plain: Asker, tree: Asker, prompts: list[str], args: argparse.Namespace
) -> list[tuple[Run, Run]]:
    """Answer every prompt with both engines, the order alternating."""
    pairs = []
    for place, prompt in enumerate(prompts):
        first, second = (plain, tree) if place % 2 else (tree, plain)
        runs = {asker: answer(asker, prompt, args) for asker in (first, second)}
        pairs.append((runs[plain], runs[tree]))
    return pairs


def report(name: str, pairs: list[tuple[Run, Run]]) -> dict[str, float]:
    ratios = [tree.speed / plain.speed for plain, tree in pairs]
    row = {
        "prompts": len(pairs),
        "plain_tokens_per_s": statistics.median(plain.speed for plain, _ in pairs),
        "tree_tokens_per_s": statistics.median(tree.speed for _, tree in pairs),
        "tokens_per_step": statistics.mean(tree.tokens_per_step for _, tree in pairs),
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "identical": sum(plain.tokens == tree.tokens for plain, tree in pairs),
    }
    print(
        f"{name:<6} {row['plain_tokens_per_s']:8.1f} {row['tree_tokens_per_s']:8.1f} "
        f"{row['tokens_per_step']:9.2f} {row['ratio_median']:7.2f} "
        f"({row['ratio_min']:.2f}-{row['ratio_max']:.2f}) {row['identical']:4}/{row['prompts']}",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--ssm", action="append", default=[], type=Path)
    parser.add_argument("--tree", type=TreeShape.parse, default=TreeShape((1, 1, 3, 1)))
    parser.add_argument("--sets", nargs="+", default=["code", "chat"], help="files of prompts/")
    parser.add_argument("--count", type=int, default=12, help="prompts a set")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    model = resolve_model(args.model)
    common = {
        "model": model,
        "dtype": args.dtype,
        "quantization": args.quantization,
        "cache_tokens": 4096,
    }
    plain = Asker(Engine.load(EngineConfig(**common, lookup=False)))
    tree = Asker(Engine.load(EngineConfig(**common, ssms=tuple(args.ssm), tree=args.tree)))
    print("set    plain/s   tree/s  tok/step  ratio (min-max)  identical")
    rows = {}
    for name in args.sets:
        lines = (PROMPTS / f"{name}.jsonl").read_text().splitlines()[: args.count]
        pairs = compare(plain, tree, [json.loads(line)["prompt"] for line in lines], args)
        rows[name] = report(name, pairs)
    if args.out:
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        where = {"machine": platform.processor() or platform.machine(), "date": time.strftime("%F")}
        document = where | versions | {"settings": vars(args), "rows": rows}
        args.out.write_text(json.dumps(document, indent=2, default=str) + "\n")
    for asker in (plain, tree):
        asker.engine.close()


if __name__ == "__main__":
    main()
