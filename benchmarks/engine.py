"""Plain decoding against token trees at every batch size and temperature, as ratios.

Both engines share one process and one copy of the weights and take their steps in turns, whichever
has had less time going next, so that a machine that slows down slows both.  Each keeps its batch
full from the same prompts, every prompt asked once: n-grams are not to learn an answer by heart.
`specinfer models fetch default` first saves the wait.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
import transformers

from specinfer.assembly import assemble
from specinfer.choices import SeededChoices
from specinfer.config import EngineConfig, TreeShape
from specinfer.lean import load_llm
from specinfer.llm import CausalLM
from specinfer.model_store import resolve_model
from specinfer.model_store.pools import resolve_ssms
from specinfer.request import Delta, Request
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.text import TextStream
from specinfer.tokenizer import Tokenizer
from specinfer.tree_attention import ForwardPlan

PROMPTS = Path(__file__).parent / "prompts"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
STRIDE = 37  # answers' lengths follow each other in steps of so many tokens, round and round
Rows = TypeVar("Rows")
UNEVEN = 0.8  # share of the batch below which a window ends: no more prompts to fill it with


class Watch:
    """Adds up the time of a model's passes, by the clock chosen."""

    def __init__(self, llm: CausalLM, clock: Callable[[], float]) -> None:
        self.now = clock
        self.seconds = 0.0
        llm.forward = self._timed(llm.forward)  # type: ignore[method-assign]
        llm.forward_with_states = self._timed(llm.forward_with_states)  # type: ignore[method-assign]

    def _timed(self, forward: Callable[[ForwardPlan], Rows]) -> Callable[[ForwardPlan], Rows]:
        def timed(plan: ForwardPlan) -> Rows:
            started = self.now()
            rows = forward(plan)
            self.seconds += self.now() - started
            return rows

        return timed


@dataclass
class Side:
    """One of the two engines, stepped by hand."""

    scheduler: Scheduler
    watch: Watch
    waiting: Iterator[Request]
    batch: int
    running: list[Request] = field(default_factory=list)
    done: list[Request] = field(default_factory=list)
    seconds: float = 0.0
    forward_seconds: float = 0.0
    steps: int = 0
    first_tokens: int = 0

    def fill(self) -> bool:
        """Keep the batch full; tell whether it still is, nearly."""
        self.done += [request for request in self.running if request.finish_reason]
        self.running = [request for request in self.running if not request.finish_reason]
        while len(self.running) < self.batch and (request := next(self.waiting, None)):
            self.scheduler.add(request)
            self.running.append(request)
        return len(self.running) >= UNEVEN * self.batch and bool(self.running)

    def step(self) -> None:
        before, started = self.watch.seconds, self.watch.now()
        self.scheduler.step()
        self.seconds += self.watch.now() - started
        self.forward_seconds += self.watch.seconds - before
        self.steps += 1

    def start_clock(self) -> None:
        """Forget what reading the first prompts took."""
        self.seconds = self.forward_seconds = 0.0
        self.steps, self.first_tokens = 0, self.emitted

    @property
    def emitted(self) -> int:
        return sum(request.emitted for request in [*self.done, *self.running])

    @property
    def speed(self) -> float:
        return (self.emitted - self.first_tokens) / self.seconds

    @property
    def overhead(self) -> float:
        """Share of the time outside the LLM's passes."""
        return 1 - self.forward_seconds / self.seconds


@dataclass(frozen=True)
class Row:
    """What one batch size and temperature came to."""

    prompts: str
    batch: int
    temperature: float
    plain_tokens_per_s: float
    tree_tokens_per_s: float
    ratio: float
    tokens_per_step: float
    plain_overhead: float
    tree_overhead: float
    identical: int
    compared: int

    def __str__(self) -> str:
        return (
            f"{self.prompts:<10} {self.batch:5} {self.temperature:4} "
            f"{self.plain_tokens_per_s:8.1f} {self.tree_tokens_per_s:8.1f} {self.ratio:7.3f} "
            f"{self.tokens_per_step:9.2f} {self.plain_overhead:9.1%} {self.tree_overhead:9.1%} "
            f"{self.identical:4}/{self.compared}"
        )


HEAD = "prompts    batch    T  plain/s   tree/s   ratio tok/pass/B plain-over tree-over  identical"


def requests(
    tokenizer: Tokenizer, prompts: list[str], temperature: float, args: argparse.Namespace
) -> Iterator[Request]:
    """Ask for answers of many lengths: of equal ones, begun together, plain decoding would read
    whole batches of prompts at once, at two thirds of what they cost one by one."""
    for number, prompt in enumerate(prompts):
        tokens = args.tokens // 2 + number * STRIDE % args.tokens
        yield Request(
            prompt=tuple(tokenizer.encode_chat([{"role": "user", "content": prompt}])),
            params=SamplingParams(max_new_tokens=tokens, temperature=temperature),
            sink=_ignore,
            choices=SeededChoices(number),
            text=TextStream(tokenizer.decode),
            eos=tokenizer.eos,
            limit=args.cache_tokens,
        )


def _ignore(delta: Delta) -> None:
    assert delta.error is None, delta.error


def run(plain: Side, tree: Side, seconds: float) -> None:
    """Step both by turns until each has had its seconds, or prompts run out."""
    for side in (plain, tree):
        side.fill()
        while any(not request.emitted for request in side.running):
            side.step()
        side.start_clock()
    while min(plain.seconds, tree.seconds) < seconds:
        side = min(plain, tree, key=lambda side: side.seconds)
        if not side.fill():
            return
        side.step()


def measure(
    name: str, batch: int, temperature: float, llm: CausalLM, watch: Watch, args: argparse.Namespace
) -> Row:
    tokenizer = Tokenizer(args.model)
    prompts = load(name)
    settings = {"model": args.model, "cache_tokens": args.cache_tokens, "max_batch": batch}
    sides = [
        Side(
            Scheduler(
                assemble(config, llm, tokenizer),
                max_batch=batch,
                prefill_rows=config.prefill_rows,
                queue_limit=len(prompts),
                tree_rows=config.most_nodes,
                drawn=config.drafts_decide,
            ),
            watch,
            requests(tokenizer, prompts, temperature, args),
            batch,
        )
        for config in (
            EngineConfig(**settings, lookup=False),
            EngineConfig(**settings, lookup=not args.no_lookup, ssms=args.ssm, tree=args.tree),
        )
    ]
    plain, tree = sides
    run(plain, tree, args.seconds)
    pairs = [
        (a.tokens, b.tokens)
        for a, b in zip(plain.done, tree.done, strict=False)
        if a.prompt == b.prompt
    ]
    return Row(
        prompts=name,
        batch=batch,
        temperature=temperature,
        plain_tokens_per_s=plain.speed,
        tree_tokens_per_s=tree.speed,
        ratio=tree.speed / plain.speed,
        tokens_per_step=(tree.emitted - tree.first_tokens) / tree.steps / batch,
        plain_overhead=plain.overhead,
        tree_overhead=tree.overhead,
        identical=sum(a == b for a, b in pairs),
        compared=len(pairs),
    )


def load(name: str) -> list[str]:
    """Return the prompts of a set, or of several joined by +, alternating."""
    sets = [
        [
            json.loads(line)["prompt"]
            for line in (PROMPTS / f"{part}.jsonl").read_text().splitlines()
        ]
        for part in name.split("+")
    ]
    longest = max(map(len, sets))
    return [prompts[i] for i in range(longest) for prompts in sets if i < len(prompts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=resolve_model, default="default")
    parser.add_argument("--ssm", action="append", default=[], help="an SSM or a pool; repeatable")
    parser.add_argument("--tree", type=TreeShape.parse, default=TreeShape((1, 1, 3, 1)))
    parser.add_argument("--no-lookup", action="store_true")
    parser.add_argument("--sets", nargs="+", default=["code", "chat"], help="joined by +: both")
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0])
    parser.add_argument("--tokens", type=int, default=64, help="of an answer, on average")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each engine and row")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: this process's own time, for a machine that others use",
    )
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--cache-tokens", type=int, default=16384)
    parser.add_argument("--out", type=Path, help="append the figures as one JSON line a row")
    args = parser.parse_args()
    args.ssm = resolve_ssms(args.ssm)
    llm = load_llm(args.model, args.dtype, torch.device("cpu"), args.quantization)
    watch = Watch(llm, CLOCKS[args.clock])
    print(HEAD)
    for name in args.sets:
        for batch in args.batch:
            for temperature in args.temperatures:
                row = measure(name, batch, temperature, llm, watch, args)
                print(row, flush=True)
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps(asdict(row) | where(args), default=str) + "\n")


def where(args: argparse.Namespace) -> dict[str, object]:
    return {
        "date": time.strftime("%F"),
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "clock": args.clock,
        "quantization": args.quantization,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "ssm": args.ssm,
        "tree": str(args.tree),
    }


if __name__ == "__main__":
    main()
