"""Says when a drafter is hardly ever right: its rows, and an SSM's passes, are then wasted."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

STEPS = 500  # verified trees with a drafter's nodes in them, before it is judged
FLOOR = 0.02  # accepted tokens a step: the worst useful drafters of the paper's Table 2 have 0.6

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Record:
    """One drafter's figures since it was last judged, and how often in a row it was too bad."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    failures: int = 0

    def judge(self, name: str) -> None:
        """Start anew; warn at the first failure, the second, the fourth, the eighth …"""
        self.failures = self.failures + 1 if self.accepted < FLOOR * self.steps else 0
        if self.failures and self.failures & (self.failures - 1) == 0:
            log.warning(
                "drafter %s: %d of %d drafted tokens were accepted in %d steps; check that it was "
                "made for this LLM and its chat template, or leave it out of the configuration",
                name,
                self.accepted,
                self.drafted,
                self.steps,
            )
        self.steps = self.drafted = self.accepted = 0


@dataclass(slots=True)
class LowAcceptance:
    """Watches all drafters, by name, over all requests."""

    _records: dict[str, _Record] = field(default_factory=dict)

    def observe(self, drafted: Iterable[list[str]], accepted: Iterable[list[str]]) -> None:
        """Take in one verified tree: who proposed each drafted node, and each accepted one."""
        named = [name for names in drafted for name in names]
        for name in named:
            self._records.setdefault(name, _Record()).drafted += 1
        for name in (name for names in accepted for name in names):
            self._records[name].accepted += 1
        for name in set(named):
            record = self._records[name]
            record.steps += 1
            if record.steps == STEPS:
                record.judge(name)
