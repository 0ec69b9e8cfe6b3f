"""One step of speculative inference and verification (paper, Algorithm 1), for a whole batch.

Draft a token tree for each request, run all trees through the LLM in one pass, verify, and keep
the accepted paths in the cache.  Prompts that are still being read ride in the same pass.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeGuard

import torch
from torch import Tensor

from specinfer.adjust import adjust_lazily, taken_as_they_are
from specinfer.config import Verifier
from specinfer.draft.pool import Pool
from specinfer.kv_cache import CachedSequence, Commit, KVCache
from specinfer.llm import CausalLM
from specinfer.request import Request, TokenLogprob
from specinfer.token_tree import ROOT, TokenTree
from specinfer.tree_attention import Segment, chain, chain_and_tree, plan
from specinfer.verify import Laws, best_of_each, follow_best, verify


@dataclass(frozen=True, slots=True)
class Job:
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


@dataclass(frozen=True, slots=True)
class Outcome:
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
    ) -> None:
        self.llm = llm
        self.cache = cache
        self.pool = pool
        self._verifier: Verifier = verifier

    def draft(self, requests: Sequence[Request], rows: int) -> list[TokenTree]:
        """Propose a tree for each request, to be verified beside so many rows."""
        with _Clock(requests, "ssm_ms"):
            return self.pool.propose(requests, rows)

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Verify the jobs' trees, whose rows are reserved; None of a job's tokens may be lost."""
        requests = [job.request for job in jobs]
        with _Clock(requests, "verify_ms"):
            rows = self.llm.forward(plan(self.cache, [job.segment() for job in jobs]))
            outcomes = self._verified(jobs, rows)
        with _Clock(requests, "commit_ms"):
            self.cache.commit([_commit(j, o) for j, o in zip(jobs, outcomes, strict=True)])
            for job, outcome in zip(jobs, outcomes, strict=True):
                if job.tree is not None:
                    self.pool.observe(job.request, outcome.tokens)
        return outcomes

    def learn(self, jobs: Sequence[Job], outcomes: Sequence[Outcome], milliseconds: float) -> None:
        """Take in how long a whole step took, drafting and delivery included."""
        if all(len(job.pending) == 1 for job in jobs):
            emitted = sum(len(outcome.tokens) for outcome in outcomes)
            self.pool.settle(len(jobs), sum(job.rows for job in jobs), milliseconds, emitted)

    def _verified(self, jobs: Sequence[Job], rows: Tensor) -> list[Outcome]:
        """Decide for each job by its rows of the LLM's logits, [R, V] in all."""
        ends = list(accumulate((len(job.tree) if job.tree else 0 for job in jobs), initial=0))
        own = [rows[start:end] for start, end in pairwise(ends)] if len(jobs) > 1 else [rows]
        wanted = [_adjusted(job, part) for job, part in zip(jobs, own, strict=True)]
        best = best_of_each(
            [part for job, part in zip(jobs, wanted, strict=True) if _is_greedy(part, job)]
        )
        outcomes: list[Outcome] = []
        for job, part, raw in zip(jobs, wanted, own, strict=True):
            if job.tree is None:
                outcomes.append(Outcome((), []))
            elif _is_greedy(part, job):
                outcomes.append(_outcome(job, raw, follow_best(job.tree, next(best))))
            else:
                params, choices = job.request.params, job.request.choices
                verdict = verify(job.tree, part, params, choices, self._verifier)
                outcomes.append(_outcome(job, raw, verdict))
        return outcomes


def _adjusted(job: Job, rows: Tensor) -> Laws:
    if job.tree is None or taken_as_they_are(job.request):
        return rows
    paths = [job.tree.tokens_to(node) for node in range(len(job.tree))]
    return adjust_lazily(rows, job.request, paths)


def _is_greedy(rows: Laws, job: Job) -> TypeGuard[Tensor]:
    """Tell whether all rows of a job are there, and only their likeliest tokens matter."""
    return job.tree is not None and job.request.params.greedy and isinstance(rows, Tensor)


def _outcome(job: Job, rows: Tensor, verdict: tuple[list[int], int]) -> Outcome:
    assert job.tree is not None
    accepted, following = verdict
    tokens = [*(job.tree.tokens[node] for node in accepted), following]
    if job.request.params.logprobs is None:
        return Outcome(accepted, tokens)
    return Outcome(accepted, tokens, _logprobs(rows[[ROOT, *accepted]], tokens, job.request))


def _logprobs(rows: Tensor, tokens: list[int], request: Request) -> list[TokenLogprob]:
    """Return what the LLM's own rows [len(tokens), V] say of the tokens that followed them."""
    count = request.params.logprobs or 0
    laws = rows.log_softmax(1)
    best = laws.topk(count, dim=1)
    own = laws.gather(1, torch.tensor(tokens, device=rows.device)[:, None])[:, 0].tolist()
    tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        TokenLogprob(token, logprob, tuple(zip(ids, values, strict=True)))
        for token, logprob, (ids, values) in zip(tokens, own, tops, strict=True)
    ]


def _commit(job: Job, outcome: Outcome) -> Commit:
    """Keep what was read and the accepted path; the token after it is the next step's root."""
    shift = len(job.pending) - 1
    rows = [*range(len(job.pending)), *(node + shift for node in outcome.accepted)]
    return Commit(job.sequence, rows, [*job.pending, *outcome.tokens[:-1]])


class _Clock:
    """Add a block's duration to one counter of every request that took part."""

    def __init__(
        self,
        requests: Sequence[Request],
        counter: str,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._requests, self._counter, self._now = requests, counter, now

    def __enter__(self) -> None:
        self._start = self._now()

    def __exit__(self, *_: object) -> None:
        spent = (self._now() - self._start) * 1e3
        for request in self._requests:
            tally = request.tally
            setattr(tally, self._counter, getattr(tally, self._counter) + spent)
