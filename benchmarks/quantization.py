"""What a quantization costs in quality: perplexity, agreement with float32, weights in memory.

The text is that of Python's own manual (pydoc_data.topics), teacher-forced; agreement counts the
positions where the likeliest token is float32's.
"""

import argparse
import time

import torch
from torch import Tensor

from specinfer.config import DType, Quantization
from specinfer.lean import load_llm
from specinfer.llm import CausalLM
from specinfer.model_store import resolve_model
from specinfer.tokenizer import Tokenizer
from specinfer.tree_attention import Segment, plan

ROWS: list[tuple[str, DType, Quantization]] = [
    ("float32", "float32", "none"),
    ("bfloat16", "bfloat16", "none"),
    ("int8", "auto", "int8"),
]


def laws(llm: CausalLM, tokens: list[int]) -> Tensor:
    """Return the log-probabilities after each token but the last, [N - 1, V]."""
    cache = llm.new_cache(tokens=len(tokens), page_size=16)
    sequence = cache.open([])
    cache.reserve(sequence, len(tokens))
    rows = range(len(tokens) - 1)
    segment = Segment(sequence, tokens[:-1], range(-1, len(tokens) - 2), rows)
    return llm.forward(plan(cache, [segment])).log_softmax(1)


def main() -> None:
    from pydoc_data.topics import topics

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    args = parser.parse_args()
    folder = resolve_model(args.model)
    text = "\n".join(topics[name] for name in sorted(topics))
    ids = Tokenizer(folder).encode(text)
    step = len(ids) // args.windows
    windows = [ids[i * step : i * step + args.length] for i in range(args.windows)]
    print("            load, s   perplexity   agrees with float32   KL to float32, nats")
    reference: list[Tensor] = []
    for name, dtype, quantization in ROWS:
        started = time.perf_counter()
        llm = load_llm(folder, dtype, torch.device("cpu"), quantization)
        loaded = time.perf_counter() - started
        own = [laws(llm, window) for window in windows]
        reference = reference or own
        follow = [
            law.gather(1, torch.tensor(window[1:])[:, None])
            for law, window in zip(own, windows, strict=True)
        ]
        perplexity = float(torch.cat(follow).mean().neg().exp())
        pairs = list(zip(reference, own, strict=True))
        same = torch.cat([a.argmax(1) == b.argmax(1) for a, b in pairs]).float().mean()
        apart = torch.cat([(a.exp() * (a - b)).sum(1) for a, b in pairs]).mean()
        print(
            f"{name:<10} {loaded:8.1f} {perplexity:12.3f} {float(same):20.1%} {float(apart):18.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
