"""The figures of all choices of one answer together: token counts and speculation."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from specinfer.tally import DrafterStats, SpeculationStats

if TYPE_CHECKING:
    from specinfer.server.dialects.common import Answer

TIMES = ("queue_ms", "prefill_ms", "ssm_ms", "verify_ms", "commit_ms")
COUNTS = ("steps", "drafted", "accepted", "emitted", "tree_nodes", "plain_steps")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the choices; the prompt they share counts once."""

    prompt_tokens: int
    generated_tokens: int
    stats: SpeculationStats

    @classmethod
    def of(cls, answers: Sequence["Answer"]) -> "Totals":
        return cls(
            prompt_tokens=answers[0].prompt_tokens,
            generated_tokens=sum(len(answer.tokens) for answer in answers),
            stats=_sum([answer.stats for answer in answers]),
        )


def _sum(each: Sequence[SpeculationStats]) -> SpeculationStats:
    histograms = zip_longest(*(stats.accepted_histogram for stats in each), fillvalue=0)
    sums = {name: sum(getattr(stats, name) for stats in each) for name in TIMES + COUNTS}
    return SpeculationStats(
        **sums,
        drafters=_drafters(each),
        accepted_histogram=tuple(map(sum, histograms)),
    )


def _drafters(each: Sequence[SpeculationStats]) -> tuple[DrafterStats, ...]:
    found: dict[str, DrafterStats] = {}
    for one in (drafter for stats in each for drafter in stats.drafters):
        before = found.get(one.name, DrafterStats(one.name, 0, 0))
        found[one.name] = DrafterStats(
            one.name, before.drafted + one.drafted, before.accepted + one.accepted
        )
    return tuple(found.values())


def speculation(stats: SpeculationStats) -> dict[str, Any]:
    """Return the figures every answer carries.  Times are in milliseconds."""
    return {
        "steps": stats.steps,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "tokens_per_step": round(stats.tokens_per_step, 3),
        "tree_nodes": stats.tree_nodes,
        "plain_steps": stats.plain_steps,
        **{name: round(getattr(stats, name), 3) for name in TIMES},
        "ssms": [
            {"name": drafter.name, "drafted": drafter.drafted, "accepted": drafter.accepted}
            for drafter in stats.drafters
        ],
    }
