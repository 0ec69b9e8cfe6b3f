"""Every verifier at equal tree on a real LLM (like the paper's Table 3), and what verifying costs.

The SSM is the LLM itself cut short after some of its layers: it agrees with it as a trained SSM
would but costs nearly as much, so tokens a step are what to compare, not tokens a second.  Every
verifier gets the same prompts, in one batch, and the same tree shape.  Seconds are this process's
own, for a machine that others use.
"""

import argparse
import json
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import torch
from transformers import AutoModelForCausalLM

from specinfer.choices import SeededChoices
from specinfer.config import EngineConfig, TreeShape, Verifier
from specinfer.draft.children import draw_children
from specinfer.engine import Engine
from specinfer.lean import load_llm
from specinfer.model_store import resolve_model
from specinfer.sampling import SamplingParams
from specinfer.testing.ask import Asker
from specinfer.token_tree import TokenTree
from specinfer.tree_attention import Segment, plan
from specinfer.verify import draws_with_replacement, verify

PROMPTS = Path(__file__).parent / "prompts"
WIDE = (4, 3, 1)  # 4 + 12 + 12 nodes below the root: a step of about 32 rows


@dataclass(frozen=True)
class Row:
    """One verifier at one temperature."""

    verifier: str
    temperature: float
    accepted_per_step: float
    tokens_per_step: float
    tokens_per_s: float

    def __str__(self) -> str:
        return (
            f"{self.verifier:<16} {self.temperature:4} {self.accepted_per_step:9.3f} "
            f"{self.tokens_per_step:9.3f} {self.tokens_per_s:9.1f}"
        )


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


def answers(asker: Asker, verifier: str, prompts: list[str], temperature: float, n: int) -> Row:
    """Answer all prompts, in one batch."""
    steps = accepted = emitted = 0
    started = time.process_time()
    params = {"max_new_tokens": n, "temperature": temperature, "ignore_eos": True}
    asked = [
        asker.submit(asker.engine.encode_chat([{"role": "user", "content": text}]), **params)[1]
        for text in prompts
    ]
    for deltas in asked:
        stats = asker.gather(deltas).last.stats
        assert stats is not None
        steps, accepted = steps + stats.steps, accepted + stats.accepted
        emitted += stats.emitted
    seconds = time.process_time() - started
    return Row(verifier, temperature, accepted / steps, emitted / steps, emitted / seconds)


def measure(
    model: Path, ssm: Path, verifier: Verifier, prompts: list[str], args: argparse.Namespace
) -> list[Row]:
    config = EngineConfig(
        model=model,
        ssms=(ssm,),
        tree=args.tree,
        verifier=verifier,
        lookup=False,
        adaptive=False,
        cache_tokens=8192,
        quantization=args.quantization,
    )
    asker = Asker(Engine.load(config))
    rows = []
    for temperature in args.temperatures:
        if temperature == 0 and verifier != "naive":
            continue  # greedy is one verifier whatever the setting
        name = "greedy" if temperature == 0 else verifier
        rows.append(answers(asker, name, prompts, temperature, args.tokens))
        print(rows[-1], flush=True)
    asker.engine.close()
    return rows


def shares(model: Path, args: argparse.Namespace) -> dict[str, float]:
    """Return each verifier's time as a share of the LLM's pass over the same rows.

    Laws of the tree's nodes are the LLM's own, tempered, so that walks go deep.
    """
    llm = load_llm(model, "auto", torch.device("cpu"), args.quantization)
    cache = llm.new_cache(tokens=256, page_size=16)
    sequence = cache.open([])
    cache.reserve(sequence, 64)
    size = 1 + TreeShape(WIDE).nodes
    segment = Segment(sequence, list(range(9, 9 + size)), [-1, *range(size - 1)], range(size))
    logits: list[torch.Tensor] = []
    forward = cpu_ms(lambda run: logits.append(llm.forward(plan(cache, [segment]))), 9)
    found = {}
    for verifier in get_args(Verifier)[1:]:
        for temperature in (t for t in args.temperatures if t > 0):
            params = SamplingParams(temperature=temperature, top_p=args.top_p)
            trees = [drafted(logits[0], params, verifier, seed) for seed in range(30)]
            walk = cpu_ms(walker(trees, logits[0], params, verifier), len(trees))
            found[f"{verifier} T={temperature}"] = walk / forward
    rows = f"{size} rows of {llm.vocab} tokens, top_p {args.top_p}"
    print(f"\nverifying {rows}; the pass itself takes {forward:.1f} ms:")
    for name, share in found.items():
        print(f"{name:<24} {share:6.1%} of a pass, {share * forward:.2f} ms")
    return found


def walker(
    trees: list[TokenTree], rows: torch.Tensor, params: SamplingParams, verifier: Verifier
) -> Callable[[int], object]:
    return lambda run: verify(
        trees[run], rows[: len(trees[run])], params, SeededChoices(run), verifier
    )


def drafted(rows: torch.Tensor, params: SamplingParams, verifier: Verifier, seed: int) -> TokenTree:
    """Draw a tree whose SSM's logits are the LLM's own with some noise."""
    tree, frontier, choices = TokenTree.rooted_at(0), [0], SeededChoices(seed)
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))
    replacement = draws_with_replacement(verifier)
    for width in WIDE:
        before = len(tree)
        for node in frontier:
            row = rows[node] + noise[node]
            draw_children(tree, node, row, width, params, choices, replacement=replacement)
        frontier = list(range(before, len(tree)))
    return tree


def cpu_ms(run: Callable[[int], object], times: int) -> float:
    """Return the median milliseconds of processor time."""
    spent = []
    for number in range(times):
        started = time.process_time()
        run(number)
        spent.append((time.process_time() - started) * 1e3)
    return statistics.median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=resolve_model, default="default")
    parser.add_argument("--layers", type=int, default=25, help="layers the SSM keeps")
    parser.add_argument("--tree", type=TreeShape.parse, default=TreeShape((2, 2, 1)))
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--top-p", type=float, default=1.0, help="of the verification step timed")
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--verifiers", nargs="+", default=get_args(Verifier)[1:])
    parser.add_argument("--count", type=int, default=6, help="prompts a set")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    prompts = [
        json.loads(line)["prompt"]
        for name in ("chat", "code")
        for line in (PROMPTS / f"{name}.jsonl").read_text().splitlines()[: args.count]
    ]
    found = shares(args.model, args)
    print(f"\ntree {args.tree}, {len(prompts)} prompts of {args.tokens} tokens")
    print("verifier            T  accepted  tok/step  tok/s", flush=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        ssm = early_exit(args.model, args.layers, Path(folder))
        for verifier in args.verifiers:
            rows += measure(args.model, ssm, verifier, prompts, args)
    accepted = {
        name: statistics.mean(r.accepted_per_step for r in rows if r.verifier == name)
        for name in {row.verifier for row in rows}
    }
    if {"traversal", "multi_step"} <= accepted.keys():
        print(f"traversal / multi_step: {accepted['traversal'] / accepted['multi_step']:.3f}")
    if args.out:
        document = {
            "date": time.strftime("%F"),
            "machine": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "settings": vars(args),
            "rows": [asdict(row) for row in rows],
            "shares": found,
        }
        args.out.write_text(json.dumps(document, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
