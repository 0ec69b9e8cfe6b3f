"""How often SSMs have the LLM's token, read off teacher-forced predictions (paper, Table 1).

While a path of draft tokens is the LLM's own, a draft and teacher-forcing see the same context;
so how many tokens a greedy step of a static tree would keep follows exactly from the hits.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specinfer.train.batches import Schedule
from specinfer.train.ranks import Ranks
from specinfer.train.shards import ANSWER, UNSCORED, Corpus
from specinfer.train.student import Student

BATCH_TOKENS = 4096


@torch.no_grad()
def predictions(student: Student, corpus: Corpus, k: int, ranks: Ranks, depth: int = 1) -> Tensor:
    """Return the k likeliest tokens (LLM ids) at every scored place, [N, depth, k]; -1 elsewhere.

    Those of level l are of a draft that began l tokens before.
    """
    found = torch.full((len(corpus.tokens), depth, k), -1, dtype=torch.int32)
    schedule = Schedule(corpus.lengths(), BATCH_TOKENS, seed=0)
    starts = corpus.offsets.tolist()
    for batch in schedule.epoch(0):
        places = torch.cat([torch.arange(starts[s], starts[s + 1]) for s in batch])
        with torch.autocast(student.head.device.type, torch.bfloat16, enabled=ranks.mixed):
            for level, laws in enumerate(student.laws(corpus, batch, depth)):
                best = student.vocabulary[laws.topk(k).indices]
                found[places, level] = best.int().cpu()
    found[corpus.kind == UNSCORED] = -1
    return found


def hits(found: Tensor, corpus: Corpus) -> Tensor:
    """Return whether the LLM's likeliest token is among found [N, L, k], [N, L]."""
    return (found == corpus.ids[:, None, :1]).any(2)


def coverage(found: Tensor, corpus: Corpus) -> list[float]:
    """Return the share of answers' places whose token is among the first 1 … k of found [N, k]."""
    answers = corpus.kind == ANSWER
    among = (found[answers] == corpus.ids[answers, :1]).cumsum(1) > 0
    shares: list[float] = among.float().mean(0).tolist()
    return shares


def tokens_per_step(paths: Sequence[Tensor], corpus: Corpus, depth: int) -> float:
    """Return the tokens a greedy step yields when the paths of several drafters are merged.

    Each of paths [N, L] tells where a drafter's tree goes on along the LLM's own continuation, by
    the level there; the merged tree keeps the longest.  Answers that were sampled are left out.
    """
    steps = tokens = 0
    rows = [path.tolist() for path in paths]
    for at, end in _greedy_answers(corpus):
        while at < end:
            kept = max(_run(row, at, min(at + depth, end)) for row in rows)
            steps += 1
            tokens += min(kept + 1, end - at)
            at += kept + 1
    return tokens / max(1, steps)


def _greedy_answers(corpus: Corpus) -> Iterator[tuple[int, int]]:
    """Yield where each answer that took the likeliest token throughout starts and ends."""
    answers = corpus.kind == ANSWER
    strayed = corpus.tokens[1:] != corpus.ids[:-1, 0]
    for start, end in zip(corpus.offsets.tolist(), corpus.offsets[1:].tolist(), strict=False):
        places = answers[start:end].nonzero()[:, 0]
        if len(places) and not strayed[start + int(places[0]) : end - 1].any():
            yield start + int(places[0]), end


def _run(row: Sequence[Sequence[bool]], start: int, end: int) -> int:
    """Return how many places from start on are hits of a draft that begins there."""
    for level, at in enumerate(range(start, end)):
        if not row[at][level]:
            return level
    return end - start
