"""From a corpus to padded batches; the batch of a step is a function of the seed and the step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer.train.shards import Corpus

POOL = 64  # batches' worth of sequences sorted by length together: little padding, still shuffled


@dataclass(frozen=True, slots=True)
class Batch:
    """What a student reads, and the laws to learn from it."""

    inputs: tuple[Tensor, ...]  # of the student's forward
    ids: Tensor  # [M, k] int64, draft ids
    probs: Tensor  # [M, k] float32, 0 for tokens outside the draft vocabulary
    weights: Tensor  # [M] float32

    def to(self, device: torch.device) -> "Batch":
        inputs = tuple(tensor.to(device) for tensor in self.inputs)
        return Batch(inputs, *(t.to(device) for t in (self.ids, self.probs, self.weights)))


@dataclass(frozen=True, slots=True)
class Targets:
    """A corpus in the terms of a draft vocabulary, each law with its weight."""

    corpus: Corpus
    ids: Tensor  # [N, k] int32, draft ids, 0 where there is none
    probs: Tensor  # [N, k] float16
    weights: Tensor  # [N] float32

    def batch(self, inputs: tuple[Tensor, ...], at: Tensor) -> Batch:
        """Return the laws at places [M] beside what a student predicts them from."""
        return Batch(inputs, self.ids[at].long(), self.probs[at].float(), self.weights[at])


def targets(corpus: Corpus, vocabulary: Tensor, weights: Tensor) -> Targets:
    """Translate the laws to draft ids; what the vocabulary lacks gets probability 0."""
    size = int(max(int(corpus.ids.max()), int(vocabulary.max()))) + 1
    draft = torch.full((size,), -1, dtype=torch.int32)
    draft[vocabulary] = torch.arange(len(vocabulary), dtype=torch.int32)
    ids = draft[corpus.ids.long()]
    probs = torch.where(ids >= 0, corpus.probs, torch.zeros_like(corpus.probs))
    return Targets(corpus, ids.clamp(min=0), probs, weights)


class Schedule:
    """Which sequences make up which step; every sequence once an epoch."""

    def __init__(self, lengths: Sequence[int], batch_tokens: int, seed: int) -> None:
        self._lengths = lengths
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._epochs: dict[int, list[list[int]]] = {}

    def sequences(self, step: int) -> list[int]:
        """Return the sequences of a step."""
        epoch = 0
        while step >= len(self.epoch(epoch)):
            step -= len(self.epoch(epoch))
            epoch += 1
        return self.epoch(epoch)[step]

    def epoch(self, epoch: int) -> list[list[int]]:
        """Return all batches of an epoch, in order."""
        if epoch not in self._epochs:
            self._epochs[epoch] = self._shuffled(epoch)
        return self._epochs[epoch]

    def _shuffled(self, epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
        order = torch.randperm(len(self._lengths), generator=generator).tolist()
        mean = max(1, sum(self._lengths) // len(self._lengths))
        pool = max(1, POOL * self._batch_tokens // mean)
        batches: list[list[int]] = []
        for start in range(0, len(order), pool):
            batches += self._cut(sorted(order[start : start + pool], key=self._lengths.__getitem__))
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def _cut(self, ordered: list[int]) -> list[list[int]]:
        """Cut sequences in the order of their lengths into batches of so many padded tokens."""
        batches: list[list[int]] = [[]]
        for sequence in ordered:
            if (
                batches[-1]
                and self._lengths[sequence] * (len(batches[-1]) + 1) > self._batch_tokens
            ):
                batches.append([])
            batches[-1].append(sequence)
        return batches
