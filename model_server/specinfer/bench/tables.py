"""Measuring a pair: acceptance of SSM tokens, and tokens a step of trees (Tables 1 to 3, Fig. 9).

All figures are counts made by the engine that serves, with fixed trees and nothing else drafting.
"""

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specinfer.bench.kept import Kept
from specinfer.config import EngineConfig, TreeShape, Verifier
from specinfer.engine import Engine
from specinfer.llm import CausalLM
from specinfer.testing.ask import Asker

DEPTH = 8
BATCH = 16  # answers at a time; only n-grams, which learn from all, depend on it
WIDTHS = range(1, 6)
VERIFIERS: tuple[Verifier, ...] = ("naive", "multi_step", "multi_step_wor", "traversal")
TEMPERATURES = {"greedy": 0.0, "stochastic": 1.0}


@dataclass(frozen=True, slots=True)
class Pair:
    """What is measured: an LLM, its pool of SSMs, and how."""

    model: Path
    ssms: tuple[Path, ...]
    tokens: int  # of an answer
    dtype: str
    quantization: str
    seeds: tuple[int, ...]
    llm: CausalLM = field(repr=False)
    kept: Kept = field(repr=False)  # what earlier runs have measured


Prompts = Sequence[str]
Say = Callable[[str], None]


def tokens_per_step(
    pair: Pair,
    ssms: Sequence[Path],
    shape: TreeShape,
    prompts: Prompts,
    temperature: float,
    **settings: Any,
) -> list[float]:
    """Return each prompt's (and seed's) tokens a step with these SSMs' merged trees."""
    names = [ssm.name for ssm in ssms]
    asked = json.dumps([names, str(shape), temperature, settings, repr(pair), *prompts])
    key = hashlib.sha256(asked.encode()).hexdigest()
    return pair.kept.get(key, lambda: _measured(pair, ssms, shape, prompts, temperature, settings))


def _measured(
    pair: Pair,
    ssms: Sequence[Path],
    shape: TreeShape,
    prompts: Prompts,
    temperature: float,
    settings: dict[str, Any],
) -> list[float]:
    room = {"max_batch": BATCH, "queue_limit": len(prompts) * len(pair.seeds)}
    given = {"lookup": False, "adaptive": False, **room, **settings}
    config = EngineConfig(
        model=pair.model,
        ssms=tuple(ssms),
        tree=shape,
        dtype=pair.dtype,  # type: ignore[arg-type]
        quantization=pair.quantization,  # type: ignore[arg-type]
        **given,
    )
    engine = Engine.over(pair.llm, config)
    try:
        seeds = pair.seeds if temperature else pair.seeds[:1]
        asked = [(prompt, seed) for prompt in prompts for seed in seeds]
        return _answers(Asker(engine), asked, pair.tokens, temperature)
    finally:
        engine.close()


def _answers(
    asker: Asker, asked: Sequence[tuple[str, int]], tokens: int, temperature: float
) -> list[float]:
    """Answer everything in batches; return the tokens a step of each answer."""
    waiting = []
    for prompt, seed in asked:
        ids = asker.engine.encode_chat([{"role": "user", "content": prompt}])
        params = {"max_new_tokens": tokens, "temperature": temperature, "seed": seed}
        waiting.append(asker.submit(ids, **params)[1])
    ends = [asker.gather(deltas).last.stats for deltas in waiting]
    return [stats.tokens_per_step for stats in ends if stats is not None]


def acceptance(pair: Pair, prompts: Prompts, temperature: float) -> list[float]:
    """Return P[the LLM's token is among the first SSM's top k], k = 1 … 5 (Table 1).

    Trees of depth 1 and width k: a step yields one token, and one more where a child stood.
    """
    first = pair.ssms[:1]
    steps = [
        tokens_per_step(pair, first, TreeShape((width,)), prompts, temperature) for width in WIDTHS
    ]
    return [statistics.mean(row) - 1 for row in steps]


def wide(width: int) -> TreeShape:
    """Return the paper's shape <1,1,width,1,1,1,1,1>."""
    return TreeShape(tuple(width if level == 2 else 1 for level in range(DEPTH)))


def by_width(pair: Pair, prompts: Prompts, temperature: float) -> dict[int, list[float]]:
    """Return tokens a step by the tree's width (Table 2; each prompt's own for Fig. 9)."""
    return {
        width: tokens_per_step(pair, pair.ssms[:1], wide(width), prompts, temperature)
        for width in WIDTHS
    }


def by_verifier(pair: Pair, prompts: Prompts) -> dict[str, float]:
    """Return tokens a step of every verifier on the same trees, at temperature 1 (Table 3)."""
    return {
        verifier: statistics.mean(
            tokens_per_step(pair, pair.ssms[:1], wide(3), prompts, 1.0, verifier=verifier)
        )
        for verifier in VERIFIERS
    }


def by_pool(pair: Pair, prompts: Prompts) -> dict[str, float]:
    """Return tokens a step, greedy, of ways to spend the same number of nodes.

    Each SSM of n alone with n chains below its n likeliest tokens, the n SSMs' chains merged, and
    both merged with what look-up and n-grams draft.
    """
    count = len(pair.ssms)
    chain, fan = TreeShape((1,) * DEPTH), TreeShape((count, *(1,) * (DEPTH - 1)))
    ways: dict[str, tuple[Sequence[Path], TreeShape, bool]] = {
        f"expansion of {ssm.name}": ((ssm,), fan, False) for ssm in pair.ssms
    }
    ways["merge of the pool"] = (pair.ssms, chain, False)
    ways["look-up and n-grams"] = ((), chain, True)
    ways["merge of the pool, look-up and n-grams"] = (pair.ssms, chain, True)
    return {
        name: statistics.mean(
            tokens_per_step(pair, ssms, shape, prompts, 0.0, lookup=lookup, lookup_nodes=8)
        )
        for name, (ssms, shape, lookup) in ways.items()
    }
