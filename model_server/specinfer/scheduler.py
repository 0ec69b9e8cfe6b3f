"""Continuous batching (paper, section 5): which requests take part in each step.

Scheduling is by iteration: a request joins as soon as there are pages for it and leaves the
moment it ends.  Prompts are read in chunks beside the decoding requests.  When pages run out the
youngest request steps back and is read again later; nothing it has emitted is lost.
"""

import time
from collections import deque
from dataclasses import dataclass, field

from specinfer.draft.low_acceptance import LowAcceptance
from specinfer.errors import QueueFullError
from specinfer.kv_cache import CachedSequence, OutOfPagesError
from specinfer.request import Delta, Request
from specinfer.speculate import Job, Outcome, Speculator
from specinfer.token_tree import TokenTree


@dataclass(slots=True, eq=False)
class _Running:
    """A request in the batch, and its part of the step."""

    request: Request
    sequence: CachedSequence
    chunk: list[int] = field(default_factory=list)  # tokens that it reads
    whole: bool = False  # they end with the root of its next tree
    nodes: int | None = None  # of its tree at most; None: it has no place yet


class Scheduler:
    """Waiting and running requests.  All methods but `add` belong to the engine's thread."""

    def __init__(
        self,
        speculator: Speculator,
        *,
        max_batch: int,
        prefill_rows: int,
        queue_limit: int,
        tree_rows: int,
        drawn: bool,
    ) -> None:
        """Trees have at most tree_rows nodes below the root, drawn ones by a request's own seed.

        A seeded answer depends on drawn trees, so such a request waits rather than go without.
        """
        self._speculator = speculator
        self._cache = speculator.cache
        self._max_batch = max_batch
        self._prefill_rows = prefill_rows
        self._queue_limit = queue_limit
        self._tree_rows = tree_rows
        self._drawn = drawn
        self._waiting: deque[Request] = deque()
        self._running: list[_Running] = []
        self._watch = LowAcceptance()

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def queued(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def add(self, request: Request) -> None:
        """Queue a request; raises QueueFullError."""
        if len(self._waiting) >= self._queue_limit:
            raise QueueFullError(self._queue_limit)
        self._waiting.append(request)

    def step(self) -> None:
        """Run one iteration: let requests in, draft, verify, hand out what was decided."""
        self._drop_cancelled()
        self._admit()
        if not self._running:
            return
        started = time.perf_counter()
        jobs = self._jobs()
        if not jobs:
            return
        outcomes = self._speculator.run(jobs)
        spent = (time.perf_counter() - started) * 1e3
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.request.tally.spend(self._speculator.spent)
            self._deliver(job, outcome, spent)
        self._speculator.learn(jobs, outcomes, (time.perf_counter() - started) * 1e3)

    def fail_all(self, message: str) -> None:
        """End every request with an error."""
        for entry in list(self._running):
            self._remove(entry)
            self._waiting.appendleft(entry.request)
        while self._waiting:
            request = self._waiting.popleft()
            _send(request, request.finish("error", message))

    def _drop_cancelled(self) -> None:
        for entry in [entry for entry in self._running if entry.request.cancelled]:
            _send(entry.request, entry.request.finish("cancelled"))
            self._remove(entry)
        for request in [request for request in list(self._waiting) if request.cancelled]:
            self._waiting.remove(request)
            _send(request, request.finish("cancelled"))

    def _admit(self) -> None:
        """Let the oldest waiting requests in while there is room for all they have to read."""
        while self._waiting and len(self._running) < self._max_batch:
            request = self._waiting[0]
            sequence = self._cache.open(request.tokens)
            try:
                self._cache.reserve(sequence, len(request.tokens) - sequence.length)
            except OutOfPagesError:
                self._cache.release(sequence)
                return
            self._waiting.popleft()
            if not request.tally.steps:
                request.tally.queue_ms = (time.perf_counter() - request.arrived) * 1e3
            self._running.append(_Running(request, sequence))

    def _jobs(self) -> list[Job]:
        """Give each running request its rows of this step.

        A tree's place is reserved before it is drawn: dropping one for what it has become would
        bias the answer, and a seeded request's draws cannot be taken back.
        """
        self._share_rows()
        for entry in list(self._running):
            if entry.chunk:
                self._place(entry)
        placed = [entry for entry in self._running if entry.nodes is not None]
        rows = sum(len(entry.chunk) for entry in placed)
        asked = [entry.request for entry in placed if entry.nodes]
        trees = iter(self._speculator.draft(asked, rows))
        return [self._job(entry, next(trees) if entry.nodes else None) for entry in placed]

    def _job(self, entry: _Running, tree: TokenTree | None) -> Job:
        """Return the job of a request whose rows are reserved; a bare root where it has no tree."""
        if tree is None and entry.whole:
            tree = TokenTree.rooted_at(entry.chunk[-1])
        return Job(entry.request, entry.sequence, entry.chunk, tree)

    def _share_rows(self) -> None:
        """Share prefill_rows out, oldest first; a request at its last token always takes part."""
        left = self._prefill_rows
        for entry in self._running:
            pending = entry.request.tokens[len(entry.sequence.tokens) :]
            if len(pending) > 1:
                entry.chunk = pending[:left]
                left -= len(entry.chunk)
            else:
                entry.chunk = pending
            entry.whole = len(entry.chunk) == len(pending)
            entry.nodes = None

    def _place(self, entry: _Running) -> None:
        """Reserve an entry's rows and note how many nodes its tree may have.

        Youngest first, others step back to make place; those placed already do not.
        """
        most = self._tree_rows if entry.whole else 0
        while not self._fits(entry, most):
            firm = self._drawn and entry.request.repeatable and len(self._running) > 1
            if not firm and self._fits(entry, 0):
                return
            victim = self._running[-1]
            if victim is entry or victim.nodes is not None:
                victim = entry
            self._preempt(victim)
            if victim is entry:
                return

    def _fits(self, entry: _Running, nodes: int) -> bool:
        """Reserve an entry's rows, so many nodes among them, if there are pages for all."""
        try:
            self._cache.reserve(entry.sequence, len(entry.chunk) + nodes)
        except OutOfPagesError:
            return False
        entry.nodes = nodes
        return True

    def _preempt(self, entry: _Running) -> None:
        entry.chunk = []
        self._remove(entry)
        self._waiting.appendleft(entry.request)

    def _remove(self, entry: _Running) -> None:
        self._running.remove(entry)
        self._cache.release(entry.sequence)
        self._speculator.pool.forget(entry.request)

    def _deliver(self, job: Job, outcome: Outcome, spent: float) -> None:
        request = job.request
        first = request.tally.steps == 0
        if first:
            request.tally.prefill_ms += spent
        if job.tree is None:
            return
        before = len(request.tokens)
        delta = request.extend(outcome.tokens, outcome.logprobs)
        # Its end is a token as well, though not one to show, unless the grammar ended it.
        ended = request.finish_reason == "eos" and not request.complete
        self._count(job, outcome, len(request.tokens) - before + ended)
        if request.finish_reason is not None:
            delta = request.with_stats(delta)
            self._remove(next(entry for entry in self._running if entry.request is request))
        _send(request, delta)

    def _count(self, job: Job, outcome: Outcome, emitted: int) -> None:
        assert job.tree is not None
        drafted: list[list[str]] = []
        accepted: list[list[str]] = []
        if len(job.tree) > 1:
            names = self._speculator.pool.names
            drafted = [[names[drafter] for drafter in who] for who in job.tree.drafters()[1:]]
            accepted = [drafted[node - 1] for node in outcome.accepted[:emitted]]
            self._watch.observe(drafted, accepted)
        job.request.tally.count(
            nodes=len(job.tree), emitted=emitted, accepted=accepted, drafted=drafted
        )


def _send(request: Request, delta: Delta) -> None:
    """Hand out a delta.  A receiver that fails gives up its request, never the batch."""
    try:
        request.sink(delta)
    except Exception:
        request.cancelled = True
