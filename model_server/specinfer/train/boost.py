"""Adaptive boost-tuning of a pool (paper, section 3.2).

One SSM is trained to the fullest; the samples it has right are marked and (all but) dropped, and
the next one is trained on the rest.  A sample here is one place of an answer: everything before
it is the prompt, the LLM's likeliest token the continuation.  Each SSM starts as the last one of
its kind.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specinfer.train.batches import targets
from specinfer.train.distil import Distillation, Log, Watch
from specinfer.train.measure import predictions
from specinfer.train.ranks import Ranks
from specinfer.train.settings import TrainConfig
from specinfer.train.shards import ANSWER, PROMPT, Corpus
from specinfer.train.student import Student


@dataclass(frozen=True, slots=True)
class Round:
    """One SSM of the pool, trained."""

    student: Student
    kind: str
    log: Log
    dropped: float  # share of the answers' places that earlier SSMs had right


def boost(
    starts: Mapping[str, Student],
    corpus: Corpus,
    config: TrainConfig,
    out: Path,
    ranks: Ranks,
    watch: Callable[[int], Watch],
) -> list[Round]:
    """Train the pool's SSMs one after the other; what is finished in out is not done again.

    starts has a student of every kind that is to be trained, all of one vocabulary.
    """
    marked = torch.zeros(len(corpus.tokens), dtype=torch.bool)
    answers = corpus.kind == ANSWER
    rounds: list[Round] = []
    latest = dict(starts)
    for number in range(config.ssms):
        kind = config.kind_of(number)
        student = latest[kind] = copy.deepcopy(latest[kind])
        data = targets(corpus, student.vocabulary.cpu(), weights(corpus, marked, config))
        work = Distillation(student, data, config, config.steps_of(number), ranks)
        work.run(out / f"round-{number + 1}.safetensors", watch(number))
        dropped = float(marked[answers].float().mean())
        rounds.append(Round(student, kind, work.log, dropped))
        if number + 1 < config.ssms:
            marked |= _marks(out / f"marks-{number + 1}.safetensors", student, corpus, ranks)
    return rounds


def weights(corpus: Corpus, marked: Tensor, config: TrainConfig) -> Tensor:
    """Return what each law counts, [N]: answers most, prompts less, what is marked hardly."""
    by_kind = torch.zeros(3)
    by_kind[PROMPT], by_kind[ANSWER] = config.prompt_weight, 1.0
    return by_kind[corpus.kind.long()] * torch.where(marked, config.kept_weight, 1.0)


def _marks(path: Path, student: Student, corpus: Corpus, ranks: Ranks) -> Tensor:
    """Return, and keep in a file, where the SSM has the LLM's likeliest token, [N]."""
    if ranks.first and not path.is_file():
        hits = predictions(student, corpus, 1, ranks)[:, 0, 0] == corpus.ids[:, 0]
        part = path.with_suffix(".part")
        save_file({"hits": hits}, part)
        part.replace(path)
    ranks.wait()
    return load_file(path)["hits"]
