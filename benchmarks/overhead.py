"""What a step costs beside its model forwards: scheduling, trees, masks, verification, text.

One line a setting: median milliseconds of a whole step, of the forwards in it, and of the rest,
whose share of the step is the figure to look at.  The scheduler is stepped in this thread, every
tree is verified whole, and the SSM is the LLM's first layers: figures of the engine's own code,
not of what speculation gains.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from verifiers import early_exit

from specinfer.assembly import assemble
from specinfer.choices import SeededChoices
from specinfer.config import EngineConfig, TreeShape
from specinfer.lean.llm import LeanLM, load_llm
from specinfer.llm import CausalLM
from specinfer.model_store import resolve_model
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.text import TextStream
from specinfer.tokenizer import Tokenizer

PROMPTS = Path(__file__).parent / "prompts"
TREE = TreeShape((1, 1, 3, 1, 1))  # 11 nodes below the root


@dataclass
class Stopwatch:
    """Adds up the milliseconds spent in the functions it is put around."""

    now: Callable[[], float]
    spent: float = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            started = self.now()
            result = function(*args)
            self.spent += (self.now() - started) * 1e3
            return result

        return timed


@dataclass(frozen=True)
class Step:
    """One iteration: its milliseconds in all, and those spent in models."""

    whole: float
    forwards: float


def a_request(tokenizer: Tokenizer, prompt: str, limit: int, params: SamplingParams) -> Request:
    return Request(
        prompt=tuple(tokenizer.encode_chat([{"role": "user", "content": prompt}])),
        params=params,
        sink=lambda delta: None,
        choices=SeededChoices(params.seed),
        text=TextStream(tokenizer.decode, params.stop),
        eos=tokenizer.eos,
        limit=limit,
    )


def measure(config: EngineConfig, watch: Stopwatch, batch: int, temperature: float) -> list[Step]:
    """Return the steps in which a whole batch decodes."""
    llm = load_llm(config.model, config.dtype, torch.device("cpu"), config.quantization)
    tokenizer = Tokenizer(config.model)
    scheduler = Scheduler(
        assemble(config, llm, tokenizer),
        max_batch=batch,
        prefill_rows=config.prefill_rows,
        queue_limit=batch,
        tree_rows=config.most_nodes,
        drawn=config.drafts_decide,
    )
    lines = (PROMPTS / "chat.jsonl").read_text().splitlines()
    texts = [json.loads(line)["prompt"] for line in lines]
    requests = []
    for seed in range(batch):
        params = SamplingParams(
            max_new_tokens=200, ignore_eos=True, temperature=temperature, seed=seed
        )
        requests.append(a_request(tokenizer, texts[seed % len(texts)], llm.max_context, params))
        scheduler.add(requests[-1])
    steps: list[Step] = []
    started = time.perf_counter()
    while time.perf_counter() - started < 15 and not any(r.finish_reason for r in requests):
        decoding = all(request.emitted > 8 for request in requests)
        watch.spent = 0.0
        begun = watch.now()
        scheduler.step()
        whole = (watch.now() - begun) * 1e3
        if decoding:
            steps.append(Step(whole, watch.spent))
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--layers", type=int, default=3, help="layers the SSM keeps")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--drafters", nargs="+", default=["none", "lookup", "ssm"])
    parser.add_argument("--quantization", default="none")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="CPU time of this thread instead of the clock: for a shared machine and one thread",
    )
    args = parser.parse_args()
    watch = Stopwatch(time.thread_time if args.cpu_time else time.perf_counter)
    for kind in (CausalLM, LeanLM):
        kind.run = watch.around(kind.run)  # type: ignore[method-assign]
    model = resolve_model(args.model)
    with tempfile.TemporaryDirectory() as folder:
        ssm = early_exit(model, args.layers, Path(folder))
        settings: dict[str, dict[str, Any]] = {
            "none": {"lookup": False},
            "lookup": {"lookup_nodes": 6},
            "ssm": {"lookup": False, "ssms": (ssm,), "tree": TREE},
        }
        print("drafter  batch  temp   step ms  forwards      rest  share  steps")
        for batch in args.batches:
            for name in args.drafters:
                for temperature in args.temperatures:
                    config = EngineConfig(
                        model=model,
                        adaptive=False,
                        quantization=args.quantization,
                        **settings[name],
                    )
                    steps = measure(config, watch, batch, temperature)
                    whole = statistics.median(step.whole for step in steps)
                    rest = statistics.median(step.whole - step.forwards for step in steps)
                    print(
                        f"{name:<8} {batch:5} {temperature:5} {whole:9.2f} {whole - rest:9.2f} "
                        f"{rest:9.2f} {rest / whole:6.1%} {len(steps):6}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
