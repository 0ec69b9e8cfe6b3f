"""`specinfer train`: from an LLM to a boost-tuned pool of SSMs, in one resumable run."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specinfer.model_store.progress import Progress
    from specinfer.train.distil import Step
    from specinfer.train.ranks import Ranks
    from specinfer.train.shards import Corpus

HELP = "distil and boost-tune a pool of SSMs for an LLM; goes on where a killed run stopped"
NUMBERS = ("vocabulary", "ssms", "blocks", "batch_tokens", "text_steps", "save_every", "seed")
SHARES = ("rate", "prompt_weight", "kept_weight")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="folder for shards, checkpoints and the pool")
    parser.add_argument("--model", default="default", help="name or Hugging Face folder of the LLM")
    parser.add_argument("--laws", type=int, default=200_000, help="tokens to have the LLM judge")
    parser.add_argument("--data", type=Path, help="use these shards and generate none")
    parser.add_argument("--prompts", type=Path, help="ask these instead of self-written prompts")
    parser.add_argument(
        "--python", action="append", default=[], type=Path, help="sources of functions to complete"
    )
    parser.add_argument(
        "--text", action="append", default=[], type=Path, help="first lesson of SSMs of layers"
    )
    parser.add_argument("--kinds", help="of each SSM, like recurrent,layers")
    parser.add_argument("--layers", help="of the LLM, that SSMs of layers start from, like 0,1")
    parser.add_argument("--steps", help="of each SSM, like 700,300")
    parser.add_argument("--loss", choices=("kl", "tv"))
    parser.add_argument("--licence", default="unknown", help="written into the pool")
    for name in NUMBERS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    for name in SHARES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float)


def run(args: argparse.Namespace) -> int:
    from transformers import AutoModelForCausalLM

    from specinfer.model_store import resolve_model
    from specinfer.model_store.progress import Progress
    from specinfer.tokenizer import Tokenizer
    from specinfer.train.pool import train
    from specinfer.train.ranks import Ranks
    from specinfer.train.shards import read_shards

    config, say = _config(args), Progress()
    folder, ranks = resolve_model(args.model), Ranks.join()
    if args.data is None and ranks.first:
        _data(args, folder, ranks, say)
    ranks.wait()
    corpus = read_shards(args.data or args.out / "data")
    if "recurrent" in config.used_kinds:
        corpus = _with_states(corpus, folder, args.out / "work", ranks, say)
    auto: Any = AutoModelForCausalLM
    train(
        auto.from_pretrained(folder, dtype="float32", local_files_only=True),
        corpus,
        config,
        args.out,
        ranks,
        lambda name: _watch(say, name, time.monotonic),
        ends=Tokenizer(folder).eos,
        text=_text(args, folder),
        licence=args.licence,
    )
    if ranks.first:
        say.say(f"the pool is ready: {args.out}; draft with it by --ssm {args.out}")
    return 0


def _config(args: argparse.Namespace) -> Any:
    from specinfer.train.settings import TrainConfig, whole_numbers

    given = {name: getattr(args, name) for name in (*NUMBERS, *SHARES, "loss")}
    lists = {name: whole_numbers(name, getattr(args, name)) for name in ("layers", "steps")}
    kinds = {"kinds": tuple(args.kinds.split(","))} if args.kinds else {}
    return TrainConfig(**{k: v for k, v in (given | lists | kinds).items() if v is not None})


def _data(args: argparse.Namespace, folder: Path, ranks: "Ranks", say: "Progress") -> None:
    from specinfer.lean import load_llm
    from specinfer.tokenizer import Tokenizer
    from specinfer.train.generation import DataConfig, generate
    from specinfer.train.prompts import Frame, read_prompts, stream

    frame = Frame.of(folder, Tokenizer(folder).eos)
    given = read_prompts(args.prompts) if args.prompts else []
    config = DataConfig(laws=args.laws, seed=args.seed or 0)
    generate(
        load_llm(folder, "auto", ranks.device, "auto"),  # int8 batches are several times faster
        frame,
        stream(config.seed, args.python, given),
        args.out / "data",
        config,
        lambda laws: say.items("laws", laws, args.laws),
    )


def _with_states(
    corpus: "Corpus", folder: Path, work: Path, ranks: "Ranks", say: "Progress"
) -> "Corpus":
    """Have each rank's LLM read a part of the corpus, and each rank take what all have kept."""
    from specinfer.lean import load_llm
    from specinfer.train import states

    llm = load_llm(folder, "auto", ranks.device, "auto")
    states.keep(corpus, llm, work, ranks, lambda done, of: say.items("states", done, of))
    ranks.wait()
    return states.stored(corpus, work)


def _text(args: argparse.Namespace, folder: Path) -> "Corpus | None":
    from specinfer.tokenizer import Tokenizer
    from specinfer.train.text import text_corpus

    if not args.text:
        return None
    return text_corpus(args.text, Tokenizer(folder).encode)


def _watch(say: "Progress", name: str, clock: Callable[[], float]) -> Callable[["Step"], None]:
    """Show steps, loss, agreement so far, and how long the rest will take."""
    began: list[tuple[float, int]] = []

    def watch(step: "Step") -> None:
        now = clock()
        if not began:
            began.append((now, step.done))
        since, first = began[0]
        left = (now - since) / max(1, step.done - first) * (step.of - step.done)
        shown = f"loss {step.loss:.2f}, agreement {step.agreement:.0%}, {left / 60:.0f} min left"
        say.items(f"{name} ({shown})", step.done, step.of)

    return watch
