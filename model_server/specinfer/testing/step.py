"""One request through scheduler, drafters, caches and tree attention, every random choice given."""

from collections.abc import Sequence

from specinfer.choices import Choices
from specinfer.draft.expansion import Expansion
from specinfer.draft.planner import Planner
from specinfer.draft.pool import Pool
from specinfer.draft.ranks import Profile
from specinfer.draft.recurrence import Recurrence
from specinfer.draft.shape import Shape
from specinfer.grammar.constraint import Constraint
from specinfer.llm import CausalLM
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.speculate import Speculator
from specinfer.ssm import SSM, RecurrentSSM
from specinfer.text import TextStream

ROOM = {"tokens": 64, "page_size": 4}


def expansion(ssm: SSM, shape: Shape, *, vocab: int, replacement: bool) -> Expansion:
    """Return a drafter for an LLM of vocab tokens that always draws one shape."""
    return Expansion(
        ssm.model,
        ssm.model.new_cache(**ROOM),
        Planner(lambda rates: [shape], Profile()),
        vocab=vocab,
        prefill_rows=64,
        vocabulary=ssm.vocabulary,
        replacement=replacement,
    )


def recurrence(ssm: RecurrentSSM, shape: Shape, *, vocab: int, replacement: bool) -> Recurrence:
    """Return the same of a recurrent SSM."""
    planner = Planner(lambda rates: [shape], Profile())
    return Recurrence(ssm, planner, vocab=vocab, replacement=replacement)


def answered(
    llm: CausalLM,
    pool: Pool,
    prompt: Sequence[int],
    params: SamplingParams,
    choices: Choices,
    *,
    constraint: Constraint | None = None,
    eos: frozenset[int] = frozenset(),
) -> Request:
    """Run one request to its end, leaving no page behind; its tokens tell what was emitted."""
    cache = llm.new_cache(**ROOM)
    scheduler = Scheduler(
        Speculator(llm, cache, pool, "auto"),
        max_batch=1,
        prefill_rows=64,
        queue_limit=1,
        tree_rows=24,
        drawn=True,
    )
    request = Request(
        prompt=tuple(prompt),
        params=params,
        sink=lambda delta: None,
        choices=choices,
        text=TextStream(lambda ids: ""),
        eos=eos,
        limit=ROOM["tokens"],
        constraint=constraint,
    )
    scheduler.add(request)
    while scheduler.busy:
        scheduler.step()
    assert cache.used == 0
    return request
