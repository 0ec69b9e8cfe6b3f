"""One rank's share of an LLM: transformers' tensor-parallel plan, and passes told by rank 0.

Heads are split among the ranks, so each caches keys and values of its own heads only, in the same
pages.  A pass goes to the other ranks together with the moves that commits have made since the
last one (paper, section 4.2: only the accepted path is kept).
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from transformers.distributed.configuration_utils import DistributedConfig

from specinfer.config import EngineConfig
from specinfer.kv_cache import KVCache
from specinfer.llm import CausalLM
from specinfer.parallel.group import Group
from specinfer.tree_attention import ForwardPlan

Move = tuple[list[int], list[int]]  # slots from, slots to


@dataclass(frozen=True, slots=True)
class NewCache:
    """Told once: the cache that rank 0 has made."""

    tokens: int
    page_size: int


@dataclass(frozen=True, slots=True)
class Work:
    """One pass: the moves to make before it, and its plan for a cache of the same pages."""

    moves: list[Move]
    plan: ForwardPlan


class JournalledCache(KVCache):
    """A cache that keeps its moves until the other ranks have been told."""

    def __init__(self, **geometry: Any) -> None:
        super().__init__(**geometry)
        self.moves: list[Move] = []

    def move(self, source: list[int], target: list[int]) -> None:
        super().move(source, target)
        self.moves.append((source, target))


class ShardedLM(CausalLM):
    """This rank's share of an LLM.  What rank 0 calls, the other ranks do too."""

    cache_type = JournalledCache
    uncapturable = "is shared by several ranks"  # capture would run passes that nobody was told
    group: Group

    @classmethod
    def of(cls, config: EngineConfig, group: Group) -> "ShardedLM":
        """Load this rank's share; raises ModelFolderError."""
        plan = DistributedConfig(tp_size=group.size)
        llm = cls.load(config.model, config.dtype, group.device, distributed_config=plan)
        llm.group = group
        return llm

    @property
    def kv_heads(self) -> int:
        return super().kv_heads // self.group.size

    def new_cache(self, *, tokens: int, page_size: int) -> KVCache:
        if self.group.leads:
            self.group.tell(NewCache(tokens, page_size))
        return super().new_cache(tokens=tokens, page_size=page_size)

    def forward(self, plan: ForwardPlan) -> Tensor:
        self._tell(plan)
        return super().forward(plan)

    def forward_with_states(self, plan: ForwardPlan) -> tuple[Tensor, Tensor]:
        self._tell(plan)
        return super().forward_with_states(plan)

    def _tell(self, plan: ForwardPlan) -> None:
        """Have the other ranks run a pass that this one, where it leads, is about to run."""
        if self.group.leads:
            assert isinstance(plan.cache, JournalledCache)
            moves, plan.cache.moves = plan.cache.moves, []
            self.group.tell(Work(moves, replace(plan, cache=None)))  # type: ignore[arg-type]


def follow(llm: ShardedLM) -> None:
    """Do what rank 0 tells until it says that there is no more."""
    told: NewCache = llm.group.hear()
    cache = llm.new_cache(tokens=told.tokens, page_size=told.page_size)
    while (work := llm.group.hear()) is not None:
        for source, target in work.moves:
            cache.move(source, target)
        llm.forward(replace(work.plan, cache=cache))
