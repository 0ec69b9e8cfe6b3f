"""One step of speculative inference and verification (paper, Algorithm 1), for a whole batch.

Draft a token tree for each request, run all trees through the LLM in one pass, verify, and keep
the accepted paths in the cache.  Prompts that are still being read ride in the same pass.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from torch import Tensor

from specinfer.config import Verifier
from specinfer.draft.pool import Pool
from specinfer.kv_cache import CachedSequence, Commit, KVCache
from specinfer.llm import CausalLM
from specinfer.logprobs import Question, logprobs
from specinfer.request import Request, TokenLogprob
from specinfer.tally import Spent
from specinfer.token_tree import ROOT, TokenTree
from specinfer.transfer import send
from specinfer.tree_attention import ForwardPlan, Segment, chain, chain_and_tree, plan
from specinfer.verify import Case, Verdict, verify_step
from specinfer_kernels import samples_together


class Job(NamedTuple):
    """A request's part of a step: tokens to read, and the tree to verify below the last one.

    Without a tree the prompt goes on after `pending`, and nothing is emitted.
    """

    request: Request
    sequence: CachedSequence
    pending: Sequence[int]
    tree: TokenTree | None

    @property
    def rows(self) -> int:
        return len(self.pending) + (len(self.tree) - 1 if self.tree else 0)

    def segment(self) -> Segment:
        if self.tree is None:
            return chain(self.sequence, self.pending, wanted=False)
        return chain_and_tree(self.sequence, self.pending, self.tree)


class Outcome(NamedTuple):
    """What a step decided for one job: the accepted nodes and the token after them."""

    accepted: Sequence[int]
    tokens: list[int]
    logprobs: Sequence[TokenLogprob] = ()


class Speculator:
    """The LLM, its cache, and the pool of drafters."""

    def __init__(
        self,
        llm: CausalLM,
        cache: KVCache,
        pool: Pool,
        verifier: Verifier,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.llm = llm
        self.cache = cache
        self.pool = pool
        self.spent = Spent()  # by the latest step
        self._drafting = 0.0  # milliseconds, for the step to come
        self._verifier: Verifier = verifier
        self._now = now
        self._together = samples_together(cache.kv.device)

    def draft(self, requests: Sequence[Request], rows: int) -> list[TokenTree]:
        """Propose a tree for each request, to be verified beside so many rows."""
        began = self._now()
        trees = self.pool.propose(requests, rows)
        self._drafting = (self._now() - began) * 1e3
        return trees

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Verify the jobs' trees, whose rows are reserved; None of a job's tokens may be lost."""
        began = self._now()
        rows, states = self._passed(plan(self.cache, [job.segment() for job in jobs]))
        outcomes = self._verified(jobs, rows)
        if states is not None:
            _keep_states(jobs, outcomes, states)
        verified = self._now()
        self.cache.commit([_commit(j, o) for j, o in zip(jobs, outcomes, strict=True)])
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.tree is not None:
                self.pool.observe(job.request, outcome.tokens)
        committing = (self._now() - verified) * 1e3
        self.spent = Spent(self._drafting, (verified - began) * 1e3, committing)
        return outcomes

    def learn(self, jobs: Sequence[Job], outcomes: Sequence[Outcome], milliseconds: float) -> None:
        """Take in how long a whole step took, drafting and delivery included."""
        if all(len(job.pending) == 1 for job in jobs):
            emitted = sum(len(outcome.tokens) for outcome in outcomes)
            self.pool.settle(len(jobs), sum(job.rows for job in jobs), milliseconds, emitted)

    def _passed(self, planned: ForwardPlan) -> tuple[Tensor, Tensor | None]:
        """Return the LLM's logits [R, V], and what its head multiplied where a drafter asks."""
        if self.pool.reads_states:
            return self.llm.forward_with_states(planned)
        return self.llm.forward(planned), None

    def _verified(self, jobs: Sequence[Job], rows: Tensor) -> list[Outcome]:
        """Decide for each job by its rows of the LLM's logits, [R, V] in all."""
        cases = [Case(job.request, job.tree) for job in jobs if job.tree is not None]
        verdicts = iter(verify_step(cases, rows, self._verifier, together=self._together))
        outcomes = [
            Outcome((), []) if job.tree is None else _outcome(job.tree, next(verdicts))
            for job in jobs
        ]
        asked = list(_asked(jobs, outcomes))
        told = logprobs(rows, [question for _, question in asked])
        for (place, _), answer in zip(asked, told, strict=True):
            outcomes[place] = outcomes[place]._replace(logprobs=answer)
        return outcomes


def _outcome(tree: TokenTree, verdict: Verdict) -> Outcome:
    accepted, following = verdict
    return Outcome(accepted, [*(tree.tokens[node] for node in accepted), following])


def _asked(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> Iterator[tuple[int, Question]]:
    """Yield what the requests that want log-probabilities ask, and the places of their jobs."""
    start = 0
    for place, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True)):
        if job.tree is None:
            continue
        if (count := job.request.params.logprobs) is not None:
            rows = [start + node for node in (ROOT, *outcome.accepted)]
            yield place, Question(rows, outcome.tokens, count)
        start += len(job.tree)


def _keep_states(jobs: Sequence[Job], outcomes: Sequence[Outcome], states: Tensor) -> None:
    """Keep the row of states [R, H] that chose each request's new last token: its SSM begins there.

    Rows of their own: what a long batch's states take is not to wait with one of its requests.
    """
    rows, start, emitting = [], 0, []
    for job, outcome in zip(jobs, outcomes, strict=True):
        if job.tree is not None:
            rows.append(start + (outcome.accepted[-1] if outcome.accepted else ROOT))
            start += len(job.tree)
            emitting.append(job.request)
    if len(rows) < len(states):  # by a tensor: a list as an index took 0.2 ms
        states = states.index_select(0, send(rows, states.device))
    for request, state in zip(emitting, states.unbind(), strict=True):
        request.state = state


def _commit(job: Job, outcome: Outcome) -> Commit:
    """Keep what was read and the accepted path; the token after it is the next step's root."""
    shift = len(job.pending) - 1
    rows = [*range(len(job.pending)), *(node + shift for node in outcome.accepted)]
    return Commit(job.sequence, rows, [*job.pending, *outcome.tokens[:-1]])
