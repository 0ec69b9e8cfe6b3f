"""`specinfer generate`: the engine alone, streaming one answer to the terminal."""

import argparse
import queue
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from specinfer.config import DType, Offload, Quantization, Verifier
from specinfer.errors import ParameterError, SpecInferError
from specinfer.grammar.spec import Grammar

if TYPE_CHECKING:
    from specinfer.config import EngineConfig
    from specinfer.engine import Engine
    from specinfer.parallel.remote import RemoteEngine
    from specinfer.request import Delta, SamplingParams
    from specinfer.tally import SpeculationStats

HELP = "Answer one prompt with the engine alone and stream it to the terminal."


class GenerationError(SpecInferError):
    """The engine gave a request up."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", help="what to answer; - reads standard input")
    parser.add_argument("--model", default="default", help="name or Hugging Face folder of the LLM")
    parser.add_argument(
        "--ssm",
        action="append",
        default=[],
        help="an SSM or a pool, repeatable; none: not even the one shipped for the model",
    )
    parser.add_argument("--tree", help="each SSM's tree: widths like 1,1,3,1, or profiled")
    parser.add_argument("--no-lookup", action="store_true", help="draft with the SSMs only")
    parser.add_argument("--plain", action="store_true", help="decode without speculation")
    parser.add_argument("--raw", action="store_true", help="do not apply the chat template")
    parser.add_argument("--verifier", choices=get_args(Verifier), default="auto")
    parser.add_argument("--dtype", choices=get_args(DType))
    parser.add_argument("--quantization", choices=get_args(Quantization), default="none")
    parser.add_argument(
        "--tensor-parallel",
        type=int,
        default=1,
        metavar="N",
        help="share the LLM among N processes, one a GPU",
    )
    parser.add_argument(
        "--offload", choices=get_args(Offload), default="none", help="where the LLM's layers stay"
    )
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--stop", action="append", default=[], help="may be repeated")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json-schema", metavar="FILE", type=Path, help="the answer fits a schema")
    form.add_argument("--regex", metavar="PATTERN", help="the answer matches an expression")
    form.add_argument("--choice", action="append", help="the answer is this; may be repeated")


def run(args: argparse.Namespace) -> int:
    from specinfer.parallel.load import load_engine

    params = _params(args)
    engine = load_engine(_config(args))
    try:
        text = sys.stdin.read() if args.prompt == "-" else args.prompt
        prompt = (
            engine.encode(text)
            if args.raw
            else engine.encode_chat([{"role": "user", "content": text}])
        )
        _stream(engine, prompt, params)
    finally:
        engine.close()
    return 0


def _params(args: argparse.Namespace) -> "SamplingParams":
    from specinfer.request import SamplingParams

    return SamplingParams(
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        seed=args.seed,
        stop=tuple(args.stop),
        grammar=_grammar(args),
    )


def _grammar(args: argparse.Namespace) -> Grammar | None:
    if args.json_schema is not None:
        try:
            return Grammar("json_schema", args.json_schema.read_text(), "--json-schema")
        except (OSError, UnicodeDecodeError) as error:
            raise ParameterError("--json-schema", str(error)) from None
    if args.regex is not None:
        return Grammar("regex", args.regex, "--regex")
    return Grammar.choice(args.choice, "--choice") if args.choice else None


def _config(args: argparse.Namespace) -> "EngineConfig":
    from specinfer.config import EngineConfig, parse_tree
    from specinfer.model_store import resolve_model
    from specinfer.model_store.pools import resolve_ssms

    given = {"tree": args.tree and parse_tree(args.tree), "dtype": args.dtype}
    return EngineConfig(
        model=resolve_model(args.model),
        ssms=() if args.plain else resolve_ssms(args.ssm, args.model),
        lookup=not (args.plain or args.no_lookup),
        verifier=args.verifier,
        quantization=args.quantization,
        tensor_parallel=args.tensor_parallel,
        offload=args.offload,
        **{name: value for name, value in given.items() if value},
    )


def _stream(engine: "Engine | RemoteEngine", prompt: list[int], params: "SamplingParams") -> None:
    """Print the answer as it comes and a line of figures behind it."""
    deltas: queue.SimpleQueue[Delta] = queue.SimpleQueue()
    started = time.perf_counter()
    handle = engine.submit(prompt, params, deltas.put)
    count = 0
    try:
        while True:
            delta = deltas.get()
            count += len(delta.tokens)
            print(delta.text, end="", flush=True)
            if delta.stats is not None:
                break
    except KeyboardInterrupt:
        handle.cancel()
        raise
    if delta.error:
        raise GenerationError(delta.error)
    print()
    seconds = time.perf_counter() - started
    print(figures(delta.stats, count, seconds), file=sys.stderr)


def figures(stats: "SpeculationStats", tokens: int, seconds: float) -> str:
    """Say in one line what the tree saved."""
    drafters = ", ".join(f"{d.name} {d.accepted}/{d.drafted}" for d in stats.drafters) or "none"
    return (
        f"[{tokens} tokens in {seconds:.1f} s, {tokens / seconds:.1f} tokens/s; "
        f"{stats.steps} LLM steps, {stats.tokens_per_step:.2f} tokens a step, "
        f"{stats.tree_nodes / max(1, stats.steps):.1f} nodes a tree; accepted/drafted: {drafters}]"
    )
