"""One contender of peers.py in a process of its own: jobs in as JSON lines, results out.

A job is {"prompts": [[ids], …], "tokens": n}; only our engine takes several prompts at once.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Answer = Callable[[list[list[int]], int], list[list[int]]]


def ours(args: argparse.Namespace, *, precision: str, tree: bool) -> Answer:
    from specinfer.config import EngineConfig
    from specinfer.engine import Engine
    from specinfer.testing.ask import Asker

    settings: dict[str, Any] = {"ssms": tuple(args.ssm)} if tree else {"lookup": False}
    settings |= {"quantization": "int8"} if precision == "int8" else {"dtype": "bfloat16"}
    engine = Engine.load(EngineConfig(model=args.model, cache_tokens=8192, max_batch=8, **settings))
    asker = Asker(engine)

    def answer(prompts: list[list[int]], tokens: int) -> list[list[int]]:
        waiting = [asker.submit(p, max_new_tokens=tokens, ignore_eos=True)[1] for p in prompts]
        return [asker.gather(deltas).tokens for deltas in waiting]

    return answer


def transformers(args: argparse.Namespace, **options: Any) -> Answer:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    if options.pop("assisted", False):
        options["assistant_model"] = AutoModelForCausalLM.from_pretrained(
            args.ssm[0], dtype=torch.bfloat16
        )

    def answer(prompts: list[list[int]], tokens: int) -> list[list[int]]:
        ids = torch.tensor(prompts[:1])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            **options,
        )
        return [out[0, ids.shape[1] :].tolist()]

    return answer


def llama_cpp(args: argparse.Namespace, *, lookup: bool) -> Answer:
    import llama_cpp
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    model = llama_cpp.Llama(
        str(args.gguf),
        n_ctx=2048,
        n_threads=torch.get_num_threads(),
        n_threads_batch=torch.get_num_threads(),
        draft_model=LlamaPromptLookupDecoding(num_pred_tokens=10) if lookup else None,
        verbose=False,
    )

    def answer(prompts: list[list[int]], tokens: int) -> list[list[int]]:
        made: list[int] = []
        for token in model.generate(prompts[0], temp=0.0, repeat_penalty=1.0):
            made.append(token)
            if len(made) == tokens:
                break
        return [made]

    return answer


CONTENDERS: dict[str, Callable[[argparse.Namespace], Answer]] = {
    "ours plain int8": lambda args: ours(args, precision="int8", tree=False),
    "ours tree int8": lambda args: ours(args, precision="int8", tree=True),
    "ours plain bf16": lambda args: ours(args, precision="bf16", tree=False),
    "ours tree bf16": lambda args: ours(args, precision="bf16", tree=True),
    "transformers": lambda args: transformers(args),
    "transformers lookup": lambda args: transformers(args, prompt_lookup_num_tokens=10),
    "transformers assisted": lambda args: transformers(args, assisted=True),
    "llama.cpp": lambda args: llama_cpp(args, lookup=False),
    "llama.cpp lookup": lambda args: llama_cpp(args, lookup=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--ssm", type=Path, action="append", default=[])
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no result
    torch.set_num_threads(args.threads)
    started = time.perf_counter()
    answer = CONTENDERS[args.contender](args)
    print(json.dumps({"load_s": time.perf_counter() - started}), file=results)
    for line in sys.stdin:
        job = json.loads(line)
        started = time.perf_counter()
        tokens = answer(job["prompts"], job["tokens"])
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"tokens": tokens, "seconds": seconds, "peak_mb": peak}), file=results)


if __name__ == "__main__":
    main()
