"""What a pool's drafts give and take, one request at a time, on disjoint parts of prompt sets.

The ways to draft share one copy of the LLM and take the parts by turns, each with drafters that
have seen nothing of the other parts.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specinfer.bench.tables import Say
from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.llm import CausalLM
from specinfer.tally import SpeculationStats
from specinfer.testing.ask import Asker

DEPTH = 8
NODES = 32  # of a fixed tree, at most
PARTS = 3
HEAD = "prompts     way            part  tokens/step  drafting  nodes  tokens/s"


@dataclass(frozen=True, slots=True)
class Row:
    """What one way to draft came to on one part of a prompt set; times without prompts."""

    prompts: str
    way: str
    part: int
    answers: int
    tokens_per_step: float  # mean of the answers
    drafting: float  # share of the time
    nodes: float  # verified a step
    tokens_per_s: float

    def __str__(self) -> str:
        return (
            f"{self.prompts:<11} {self.way:<14} {self.part:4} {self.tokens_per_step:12.2f}"
            f" {self.drafting:9.1%} {self.nodes:6.1f} {self.tokens_per_s:9.1f}"
        )


def ways(
    model: Path, ssms: Sequence[Path], dtype: str, quantization: str
) -> dict[str, EngineConfig]:
    """Return the ways to draft by name: fixed trees of at most NODES nodes, and what is served."""
    served = EngineConfig(
        model=model,
        dtype=dtype,  # type: ignore[arg-type]
        quantization=quantization,  # type: ignore[arg-type]
        cache_tokens=4096,
        max_batch=1,
    )
    chain = TreeShape((1,) * DEPTH)
    fixed = replace(served, adaptive=False, tree=chain, lookup_depth=DEPTH)
    free = replace(fixed, lookup_nodes=NODES // 4)
    left = NODES - DEPTH * len(ssms)
    found = {
        "plain": replace(served, lookup=False),
        "free, fixed": free,
        "pool, fixed": replace(fixed, ssms=tuple(ssms), lookup_nodes=max(1, left // 2)),
        "free, auto": served,
        "pool, auto": replace(served, ssms=tuple(ssms)),
    }
    return found if ssms else {name: way for name, way in found.items() if "pool" not in name}


def measure(
    llm: CausalLM,
    configs: dict[str, EngineConfig],
    sets: dict[str, list[str]],
    tokens: int,
    say: Say,
) -> list[Row]:
    """Return a row for each prompt set, way and part; say them as they come."""
    say(HEAD)
    rows: list[Row] = []
    for name, prompts in sets.items():
        for part in range(PARTS):
            for way, config in configs.items():
                stats = list(answers(llm, config, prompts[part::PARTS], tokens))
                rows.append(figures(name, way, part + 1, stats))
                say(str(rows[-1]))
    return rows


def answers(
    llm: CausalLM, config: EngineConfig, prompts: Sequence[str], tokens: int
) -> Iterator[SpeculationStats]:
    """Answer prompts greedily, one after the other, each read into the caches before.

    What comes first pays for memory and threads that are touched first, and does not count.
    """
    engine = Engine.over(llm, config)
    try:
        ask = Asker(engine)
        for number, prompt in enumerate(["Say hello.", *prompts]):
            ids = engine.encode_chat([{"role": "user", "content": prompt}])
            ask(ids, max_new_tokens=1)
            stats = ask(ids, max_new_tokens=tokens).last.stats
            if number and stats is not None and stats.steps:
                yield stats
    finally:
        engine.close()


def figures(prompts: str, way: str, part: int, stats: Sequence[SpeculationStats]) -> Row:
    drafting = sum(one.ssm_ms for one in stats)
    time = drafting + sum(one.verify_ms + one.commit_ms for one in stats)
    return Row(
        prompts=prompts,
        way=way,
        part=part,
        answers=len(stats),
        tokens_per_step=statistics.mean(one.tokens_per_step for one in stats),
        drafting=drafting / time,
        nodes=sum(one.drafted for one in stats) / sum(one.steps for one in stats),
        tokens_per_s=sum(one.emitted for one in stats) / time * 1e3,
    )


def summary(rows: Sequence[Row]) -> list[str]:
    """Return a line for each prompt set and way: the mean of its parts, and the worst."""
    found = []
    for name, way in dict.fromkeys((row.prompts, row.way) for row in rows):
        own = [row for row in rows if (row.prompts, row.way) == (name, way)]
        steps, share = [row.tokens_per_step for row in own], [row.drafting for row in own]
        speed = statistics.mean(row.tokens_per_s for row in own)
        found.append(
            f"{name}, {way}: {statistics.mean(steps):.2f} tokens a step (least {min(steps):.2f}), "
            f"drafting {statistics.mean(share):.0%} (most {max(share):.0%}), {speed:.1f} tokens/s"
        )
    return found
