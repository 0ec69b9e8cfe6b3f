"""`specinfer profile`: how often each rank of an SSM's draws stands, and the tree that suits it."""

import argparse
import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from specinfer.config import DType, Verifier
from specinfer.errors import ConfigError, SpecInferError

if TYPE_CHECKING:
    from specinfer.draft.planner import Planner
    from specinfer.engine import Engine
    from specinfer.request import Delta

HELP = "Measure how often each rank of an SSM's draws is accepted; tree: profiled uses it."
WIDTHS = (6, 6)  # each of six ranks is tried at every place that the LLM's own path comes by


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="default", help="name or Hugging Face folder of the LLM")
    parser.add_argument("--ssm", type=Path, required=True, help="folder of the SSM")
    parser.add_argument(
        "--prompts", type=Path, required=True, help='JSON lines, each with a "prompt"'
    )
    parser.add_argument("--out", type=Path, required=True, help="file for SPECINFER_TREE_PROFILE")
    parser.add_argument("--count", type=int, default=24, help="prompts at most")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.7, help="of the sampled half")
    parser.add_argument("--nodes", type=int, default=20, help="of the largest tree looked at")
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--verifier", choices=get_args(Verifier), default="auto")
    parser.add_argument("--dtype", choices=get_args(DType), default="auto")


def run(args: argparse.Namespace) -> int:
    document = _measured(args, list(_prompts(args.prompts))[: args.count])
    args.out.write_text(json.dumps(document, indent=2) + "\n")
    print(_report(document))
    return 0


def _measured(args: argparse.Namespace, prompts: list[str]) -> dict[str, Any]:
    """Answer the prompts greedily and sampling, and look for the best trees."""
    from specinfer.assembly import assemble, measured, priced
    from specinfer.config import EngineConfig, TreeShape
    from specinfer.draft.expansion import Expansion
    from specinfer.draft.planner import Planner, of_any_size
    from specinfer.draft.ranks import MEASURED, Profile
    from specinfer.draft.recurrence import Recurrence
    from specinfer.engine import Engine
    from specinfer.lean import load_llm
    from specinfer.llm import resolve_device
    from specinfer.model_store import resolve_model
    from specinfer.tokenizer import Tokenizer

    config = EngineConfig(
        model=resolve_model(args.model),
        ssms=(args.ssm,),
        tree=TreeShape(WIDTHS),
        tree_nodes=args.nodes,
        tree_depth=args.depth,
        lookup=False,
        adaptive=False,
        verifier=args.verifier,
        dtype=args.dtype,
        queue_limit=len(prompts),
    )
    llm = load_llm(config.model, config.dtype, resolve_device(config.device))
    tokenizer = Tokenizer(config.model)
    speculator = assemble(config, llm, tokenizer)
    engine = Engine(speculator, tokenizer, config, model_id=llm.name, revision="")
    try:
        for temperature in (0.0, args.temperature):
            _answer_all(engine, prompts, temperature, args.max_new_tokens)
    finally:
        engine.close()
    (drafter,) = speculator.pool.drafters
    assert isinstance(drafter, Expansion | Recurrence)
    greedy, sampled = (drafter.planner.rates(greedy=own) for own in (True, False))
    planner = Planner(
        of_any_size(args.nodes, args.depth),
        Profile(greedy, sampled, MEASURED),
        ssm=priced(drafter),
        llm=measured(llm, speculator.cache),
        passes=drafter.planner.passes,
    )
    return {
        "model": llm.name,
        "ssm": drafter.name,
        "verifier": args.verifier,
        "temperature": args.temperature,
        "greedy": greedy,
        "sampled": sampled,
        "best": {name: _best(planner, greedy=name == "greedy") for name in ("greedy", "sampled")},
    }


def _prompts(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text().splitlines()
        prompts = [json.loads(line)["prompt"] for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--prompts: {path}: {error}") from None
    if not prompts or not all(isinstance(prompt, str) and prompt for prompt in prompts):
        raise ConfigError(f'--prompts: {path}: every line needs a "prompt" of some text')
    yield from prompts


def _answer_all(engine: "Engine", prompts: list[str], temperature: float, tokens: int) -> None:
    """Answer all prompts, as many at once as the engine takes."""
    from specinfer.sampling import SamplingParams

    last: queue.SimpleQueue[Delta] = queue.SimpleQueue()
    params = SamplingParams(max_new_tokens=tokens, temperature=temperature)
    for prompt in prompts:
        ids = engine.encode_chat([{"role": "user", "content": prompt}])
        engine.submit(ids, params, lambda delta: last.put(delta) if delta.finish_reason else None)
    for _ in prompts:
        if error := last.get().error:
            raise SpecInferError(error)


def _best(planner: "Planner", *, greedy: bool) -> dict[str, Any] | None:
    """Return the tree that one request is served fastest with; None: better not to draft."""
    shape = planner.best(1, greedy=greedy)
    if shape is None:
        return None
    return {
        "nodes": shape.nodes,
        "depth": shape.depth,
        "children": shape.inner,
        "tokens_per_step": round(shape.expected(planner.rates(greedy=greedy)), 3),
    }


def _report(document: dict[str, Any]) -> str:
    lines = ["rank     " + " ".join(f"{rank:6}" for rank in range(1, WIDTHS[0] + 1))]
    for name in ("greedy", "sampled"):
        rates, best = document[name], document["best"][name]
        lines.append(f"{name:<8} " + " ".join(f"{rate:6.3f}" for rate in rates))
        said = (
            f"{best['nodes']} nodes, depth {best['depth']}, children {best['children']}: "
            f"{best['tokens_per_step']} tokens a step"
            if best
            else "not to draft: the SSM costs more than it would save"
        )
        lines.append(f"         best for one request: {said}")
    return "\n".join(lines)
