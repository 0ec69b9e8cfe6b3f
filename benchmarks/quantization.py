"""What a quantization costs and gains: memory, perplexity, agreement, speed, accepted drafts.

The text is that of Python's own manual (pydoc_data.topics), teacher-forced; agreement counts the
positions where the likeliest token is float32's, or bfloat16's.  Then prompts are answered
greedily, plainly and with a chain drafted by the SSM that comes with the model, which has the same
setting.  Memory is what the process grew by.  One row after the other, so on a shared machine
compare only what is far apart.

    python benchmarks/quantization.py --windows 6
"""

import argparse
import ctypes
import gc
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specinfer.config import DType, EngineConfig, Quantization, TreeShape
from specinfer.engine import Engine
from specinfer.lean import load_llm
from specinfer.llm import CausalLM
from specinfer.model_store import resolve_model
from specinfer.ssm import pool_members, shipped_pool
from specinfer.testing.ask import Asker
from specinfer.tokenizer import Tokenizer
from specinfer.tree_attention import Segment, plan

ROWS: list[tuple[str, DType, Quantization]] = [
    ("float32", "float32", "none"),
    ("bfloat16", "bfloat16", "none"),
    ("int8", "auto", "int8"),
    ("int8_weight_only", "bfloat16", "int8_weight_only"),
    ("int4_weight_only", "bfloat16", "int4_weight_only"),
]
CPU = torch.device("cpu")
PROMPTS = Path(__file__).parent / "prompts" / "code.jsonl"
CHAIN = TreeShape((1, 1, 1, 1))


@dataclass(frozen=True)
class Quality:
    """Laws over the windows, and what loading them took."""

    laws: list[Tensor]
    seconds: float
    grown: int  # bytes


def resident() -> int:
    """Return the bytes of this process, after giving back what is free."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def laws(llm: CausalLM, tokens: list[int]) -> Tensor:
    """Return the log-probabilities after each token but the last, [N - 1, V]."""
    cache = llm.new_cache(tokens=len(tokens), page_size=16)
    sequence = cache.open([])
    cache.reserve(sequence, len(tokens))
    rows = range(len(tokens) - 1)
    segment = Segment(sequence, tokens[:-1], range(-1, len(tokens) - 2), rows)
    return llm.forward(plan(cache, [segment])).log_softmax(1)


def quality(folder: Path, dtype: DType, kind: Quantization, windows: list[list[int]]) -> Quality:
    before, started = resident(), time.perf_counter()
    llm = load_llm(folder, dtype, CPU, kind)
    seconds = time.perf_counter() - started
    laws(llm, windows[0][:8])
    grown = resident() - before
    return Quality([laws(llm, window) for window in windows], seconds, grown)


def speed(config: EngineConfig, prompts: list[str], tokens: int) -> tuple[float, float]:
    """Return tokens a second and a step."""
    asker = Asker(Engine.load(config))
    try:
        ids = [asker.engine.encode_chat([{"role": "user", "content": one}]) for one in prompts]
        asker(ids[0], max_new_tokens=4)
        started, emitted, steps = time.perf_counter(), 0, 0
        for prompt in ids:
            answer = asker(prompt, max_new_tokens=tokens)
            assert answer.last.stats is not None
            emitted, steps = emitted + len(answer.tokens), steps + answer.last.stats.steps
        return emitted / (time.perf_counter() - started), emitted / steps
    finally:
        asker.engine.close()


def told(found: Quality, references: dict[str, list[Tensor]], windows: list[list[int]]) -> str:
    follow = [
        law.gather(1, torch.tensor(window[1:])[:, None])
        for law, window in zip(found.laws, windows, strict=True)
    ]
    perplexity = float(torch.cat(follow).mean().neg().exp())

    def same(name: str) -> float:
        pairs = zip(references.get(name, found.laws), found.laws, strict=True)
        return float(torch.cat([a.argmax(1) == b.argmax(1) for a, b in pairs]).float().mean())

    pairs = zip(references["float32"], found.laws, strict=True)
    apart = float(torch.cat([(a.exp() * (a - b)).sum(1) for a, b in pairs]).mean())
    return (
        f"{found.seconds:7.1f} {found.grown / 1e6:8.0f} {perplexity:11.3f} "
        f"{same('float32'):9.1%} {same('bfloat16'):9.1%} {apart:9.5f}"
    )


def main() -> None:
    from pydoc_data.topics import topics

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="default")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()
    folder = resolve_model(args.model)
    pool = shipped_pool(folder.name)
    ssms = pool_members(pool)[:1] if pool else ()
    text = "\n".join(topics[name] for name in sorted(topics))
    ids = Tokenizer(folder).encode(text)
    step = len(ids) // args.windows
    windows = [ids[i * step : i * step + args.length] for i in range(args.windows)]
    prompts = [json.loads(line)["prompt"] for line in PROMPTS.read_text().splitlines()]
    print(f"{folder.name}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(
        f"{'':17} load, s   MB held  perplexity = float32 = bfloat16  KL, nats"
        "   plain: tokens/s   chain: tokens/s  a step"
    )
    references: dict[str, list[Tensor]] = {}
    for name, dtype, kind in ROWS:
        found = quality(folder, dtype, kind, windows)
        references.setdefault(name, found.laws)
        settings = {"model": folder, "dtype": dtype, "quantization": kind, "lookup": False}
        plain = EngineConfig(**settings)
        chain = EngineConfig(**settings, ssms=ssms, tree=CHAIN, adaptive=False)
        chosen = prompts[: args.prompts]
        alone, _ = speed(plain, chosen, args.tokens)
        drafted, accepted = speed(chain, chosen, args.tokens)
        print(
            f"{name:<17} {told(found, references, windows)} {alone:17.1f} {drafted:17.1f} "
            f"{accepted:7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
