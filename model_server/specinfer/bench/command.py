"""`specinfer bench paper`: the paper's tables for an LLM and its pool, by one command."""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

HELP = "measure an LLM and its SSMs like the paper's tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["paper"])
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
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--out", type=Path, required=True, help="writes OUT.json and OUT.png")


def run(args: argparse.Namespace) -> int:
    from specinfer.bench.paper import draw, measure
    from specinfer.bench.prompt_sets import prompt_set
    from specinfer.bench.tables import Pair
    from specinfer.model_store import resolve_model
    from specinfer.model_store.pools import resolve_ssms

    pair = Pair(
        resolve_model(args.model),
        resolve_ssms(args.ssm),
        args.tokens,
        args.dtype,
        args.quantization,
        tuple(range(args.seeds)),
    )
    sets = {}
    for chosen in args.prompts or ["humaneval"]:
        name, prompts = prompt_set(chosen, args.count)
        sets[name] = measure(pair, name, prompts, lambda text: print(text, file=sys.stderr))
    settings = {key: value for key, value in vars(args).items() if key != "command"}
    where = {"machine": platform.processor() or platform.machine(), "date": time.strftime("%F")}
    document = where | {"settings": settings, "sets": sets}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(json.dumps(document, indent=1, default=str) + "\n")
    draw(args.out.with_suffix(".png"), sets)
    return 0
