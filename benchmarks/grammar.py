"""What a grammar costs and what its forced tokens save, on the same questions.

A line a setting: tokens an LLM step, tokens a second, and the share of the time that went into
the grammar (masks, steps of the matcher, checks of drafted nodes).  `free` asks without one.
"""

import argparse
import time
from pathlib import Path
from typing import Any

from overhead import Stopwatch

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.grammar.constraint import Constraint
from specinfer.grammar.spec import Grammar
from specinfer.model_store import resolve_model
from specinfer.testing.ask import Asker

SCHEMA = Grammar(
    "json_schema", (Path(__file__).parents[1] / "docs" / "person.json").read_text(), "schema"
)
PEOPLE = ("Ada Lovelace", "Alan Turing", "Emmy Noether", "Marie Curie")
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"lookup": False},
    "all nodes": {"adaptive": False},
    "adaptive": {},
}


def ask_all(asker: Asker, grammar: Grammar | None, temperature: float, tokens: int) -> str:
    """Ask of everybody, one after another; say what it took."""
    watch, steps, emitted, drafters = Stopwatch(), 0, 0, dict[str, list[int]]()
    known = {name: getattr(Constraint, name) for name in ("mask", "advance", "admits", "forced")}
    for name, method in known.items():
        setattr(Constraint, name, watch.around(method))
    started = time.perf_counter()
    for seed, person in enumerate(PEOPLE):
        text = f"Describe {person} as JSON with name, date_of_birth and occupation."
        prompt = asker.engine.encode_chat([{"role": "user", "content": text}])
        stats = asker(
            prompt, max_new_tokens=tokens, temperature=temperature, seed=seed, grammar=grammar
        ).last.stats
        assert stats is not None
        steps, emitted = steps + stats.steps, emitted + stats.emitted
        for drafter in stats.drafters:
            counts = drafters.setdefault(drafter.name, [0, 0])
            counts[0] += drafter.accepted
            counts[1] += drafter.drafted
    spent = time.perf_counter() - started
    for name, method in known.items():
        setattr(Constraint, name, method)
    shares = " ".join(f"{name} {good}/{all_}" for name, (good, all_) in sorted(drafters.items()))
    return (
        f"{emitted / steps:11.2f} {emitted / spent:9.1f} {watch.spent / spent / 10:8.2f}%  {shares}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="default")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    args = parser.parse_args()
    print("setting    form    temp  tokens/step  tokens/s  grammar  accepted/drafted")
    model = resolve_model(args.model)
    for name in args.settings:
        engine = Engine.load(EngineConfig(model=model, **SETTINGS[name]))
        asker = Asker(engine)
        ask_all(asker, SCHEMA, 0.0, 4)
        for temperature in args.temperatures:
            for form, grammar in (("schema", SCHEMA), ("free", None)):
                told = ask_all(asker, grammar, temperature, args.tokens)
                print(f"{name:<10} {form:<7} {temperature:4} {told}", flush=True)
        engine.close()


if __name__ == "__main__":
    main()
