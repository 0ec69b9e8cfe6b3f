"""The figures of one request's speculation, as they are counted and as they are told."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DrafterStats:
    """Nodes one drafter proposed, and how many of them were accepted."""

    name: str
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """Figures of one request.

    Times are in milliseconds; a step's whole time counts for every request that took part in it.
    """

    steps: int  # LLM forwards that emitted tokens
    drafted: int  # speculated nodes, roots excluded
    accepted: int  # speculated nodes that became output
    emitted: int  # tokens those steps produced, each step's own bonus token included
    tree_nodes: int  # nodes verified, roots included
    plain_steps: int  # steps that verified no speculated node: plain decoding
    queue_ms: float
    prefill_ms: float
    ssm_ms: float
    verify_ms: float
    commit_ms: float
    drafters: tuple[DrafterStats, ...]
    accepted_histogram: tuple[int, ...]  # [n]: steps in which n speculated nodes became output

    @property
    def tokens_per_step(self) -> float:
        return self.emitted / self.steps if self.steps else 0.0


class Spent(NamedTuple):
    """Milliseconds of one step."""

    ssm_ms: float = 0.0
    verify_ms: float = 0.0
    commit_ms: float = 0.0


@dataclass(slots=True)
class Tally:
    """The mutable counters behind SpeculationStats."""

    steps: int = 0
    emitted: int = 0
    tree_nodes: int = 0
    plain_steps: int = 0
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    ssm_ms: float = 0.0
    verify_ms: float = 0.0
    commit_ms: float = 0.0
    drafted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    accepted_nodes: int = 0
    histogram: Counter[int] = field(default_factory=Counter)  # accepted nodes of a step -> steps

    def spend(self, spent: Spent) -> None:
        """Add a step's time."""
        self.ssm_ms += spent.ssm_ms
        self.verify_ms += spent.verify_ms
        self.commit_ms += spent.commit_ms

    def count(
        self,
        *,
        nodes: int,
        emitted: int,
        drafted: list[list[str]],
        accepted: list[list[str]],
    ) -> None:
        """Add one step: drafted and accepted name the drafters of each such node."""
        self.steps += 1
        self.emitted += emitted
        self.tree_nodes += nodes
        self.plain_steps += nodes == 1
        self.accepted_nodes += len(accepted)
        self.histogram[len(accepted)] += 1
        for counts, nodes_names in ((self.drafted, drafted), (self.accepted, accepted)):
            for name in (name for names in nodes_names for name in names):
                counts[name] = counts.get(name, 0) + 1

    def stats(self) -> SpeculationStats:
        return SpeculationStats(
            steps=self.steps,
            drafted=self.tree_nodes - self.steps,
            accepted=self.accepted_nodes,
            emitted=self.emitted,
            tree_nodes=self.tree_nodes,
            plain_steps=self.plain_steps,
            queue_ms=self.queue_ms,
            prefill_ms=self.prefill_ms,
            ssm_ms=self.ssm_ms,
            verify_ms=self.verify_ms,
            commit_ms=self.commit_ms,
            drafters=tuple(
                DrafterStats(name, count, self.accepted.get(name, 0))
                for name, count in self.drafted.items()
            ),
            accepted_histogram=tuple(
                self.histogram[accepted] for accepted in range(max(self.histogram, default=-1) + 1)
            ),
        )
