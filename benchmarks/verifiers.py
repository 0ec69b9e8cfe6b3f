"""Tokens a step of every verifier at equal tree, on a real LLM (like the paper's Table 3).

Counts, not times: the SSM is the LLM itself cut short after some of its layers, which agrees with
it as a trained SSM would but costs nearly as much.  Every verifier gets the same prompts, seeds
and tree shape.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import get_args

import torch
from transformers import AutoModelForCausalLM

from specinfer.config import EngineConfig, TreeShape, Verifier
from specinfer.engine import Engine
from specinfer.model_store import resolve_model
from specinfer.testing.ask import Asker

PROMPTS = Path(__file__).parent / "prompts"


def early_exit(model: Path, layers: int, folder: Path) -> Path:
    """Write the model without its later layers, as an SSM of the same tokenizer."""
    llm = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    llm.model.layers = llm.model.layers[:layers]
    llm.config.num_hidden_layers = layers
    llm.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (model / name).is_file():
            shutil.copy(model / name, folder)
    return folder


def accepted_per_step(asker: Asker, prompts: list[str], temperature: float, tokens: int) -> float:
    """Return the accepted drafted tokens an LLM step, over all prompts."""
    steps = accepted = 0
    for seed, prompt in enumerate(prompts):
        ids = asker.engine.encode_chat([{"role": "user", "content": prompt}])
        stats = asker(
            ids, max_new_tokens=tokens, temperature=temperature, seed=seed, ignore_eos=True
        ).last.stats
        assert stats is not None
        steps, accepted = steps + stats.steps, accepted + stats.accepted
    return accepted / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--layers", type=int, default=25, help="layers the SSM keeps")
    parser.add_argument("--tree", type=TreeShape.parse, default=TreeShape((2, 2, 1)))
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.7, 1.0])
    parser.add_argument("--count", type=int, default=6, help="prompts a set")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    model = resolve_model(args.model)
    prompts = [
        json.loads(line)["prompt"]
        for name in ("chat", "code")
        for line in (PROMPTS / f"{name}.jsonl").read_text().splitlines()[: args.count]
    ]
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ssm = early_exit(model, args.layers, Path(folder))
        print(f"accepted tokens a step, tree {args.tree}, {len(prompts)} prompts", flush=True)
        for verifier in get_args(Verifier)[1:]:
            rows[verifier] = _measure(model, ssm, verifier, prompts, args)
    base = statistics.mean(rows["multi_step"].values())
    print(f"traversal / multi_step: {statistics.mean(rows['traversal'].values()) / base:.3f}")
    if args.out:
        document = {"date": time.strftime("%F"), "settings": vars(args), "rows": rows}
        args.out.write_text(json.dumps(document, indent=2, default=str) + "\n")


def _measure(
    model: Path, ssm: Path, verifier: Verifier, prompts: list[str], args: argparse.Namespace
) -> dict[str, float]:
    config = EngineConfig(
        model=model,
        ssms=(ssm,),
        tree=args.tree,
        verifier=verifier,
        lookup=False,
        adaptive=False,
        cache_tokens=2048,
    )
    asker = Asker(Engine.load(config))
    row = {
        f"T={temperature}": accepted_per_step(asker, prompts, temperature, args.tokens)
        for temperature in args.temperatures
    }
    asker.engine.close()
    print(f"{verifier:<16}", *(f"{name} {value:.3f}" for name, value in row.items()), flush=True)
    return row


if __name__ == "__main__":
    main()
