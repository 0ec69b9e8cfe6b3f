"""`specinfer bench`: the paper's tables for an LLM and its pool, and what drafting takes."""

import argparse
import json
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specinfer.llm import CausalLM

HELP = "measure an LLM and its SSMs: the paper's tables, or what drafting gives and takes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["paper", "drafting"])
    parser.add_argument("--model", default="default", help="name or Hugging Face folder of the LLM")
    parser.add_argument(
        "--ssm", action="append", required=True, help="an SSM, or a pool of them; may be repeated"
    )
    parser.add_argument(
        "--prompts",
        action="append",
        help="`humaneval` or a file of JSON lines with `prompt`; may be repeated",
    )
    parser.add_argument("--count", type=int, default=8, help="prompts of each set")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--seeds", type=int, default=3, help="of every stochastic answer")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantization", choices=["none", "int8", "auto"], default="none")
    parser.add_argument(
        "--out", type=Path, required=True, help="writes OUT.json, and OUT.png of the tables"
    )


def run(args: argparse.Namespace) -> int:
    from specinfer.bench.prompt_sets import prompt_set

    chosen = args.prompts or ["humaneval"]
    sets = dict(prompt_set(name, args.count) for name in chosen)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    measured = (_paper if args.what == "paper" else _drafting)(args, sets)
    settings = {key: value for key, value in vars(args).items() if key != "command"}
    where = {"machine": platform.processor() or platform.machine(), "date": time.strftime("%F")}
    document = where | {"settings": settings} | measured
    args.out.with_suffix(".json").write_text(json.dumps(document, indent=1, default=str) + "\n")
    return 0


def _paper(args: argparse.Namespace, sets: dict[str, list[str]]) -> dict[str, Any]:
    from specinfer.bench.kept import Kept
    from specinfer.bench.paper import draw, measure
    from specinfer.bench.tables import Pair

    kept = Kept(args.out.with_suffix(".parts.json"))
    llm, model, ssms, quantization = _loaded(args)
    seeds = tuple(range(args.seeds))
    pair = Pair(model, ssms, args.tokens, args.dtype, quantization, seeds, llm, kept)
    found = {name: measure(pair, name, prompts, _say) for name, prompts in sets.items()}
    draw(args.out.with_suffix(".png"), found)
    kept.drop()
    return {"sets": found}


def _drafting(args: argparse.Namespace, sets: dict[str, list[str]]) -> dict[str, Any]:
    import torch

    from specinfer.bench.drafting import measure, summary, ways

    llm, model, ssms, quantization = _loaded(args)
    rows = measure(llm, ways(model, ssms, args.dtype, quantization), sets, args.tokens, _say)
    for line in summary(rows):
        print(line)
    return {"threads": torch.get_num_threads(), "rows": [asdict(row) for row in rows]}


def _loaded(args: argparse.Namespace) -> "tuple[CausalLM, Path, tuple[Path, ...], str]":
    """Return the LLM, its folder, the SSMs' folders, and the LLM's quantization."""
    from specinfer.lean import load_llm, resolve_quantization
    from specinfer.llm import resolve_device
    from specinfer.model_store import resolve_model
    from specinfer.model_store.pools import resolve_ssms

    model, device = resolve_model(args.model), resolve_device("auto")
    quantization = resolve_quantization(args.quantization, model, device)
    llm = load_llm(model, args.dtype, device, quantization)
    return llm, model, resolve_ssms(args.ssm), quantization


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
