"""What every student of an LLM has: a draft vocabulary, the LLM's head for it, weights to learn.

Embedding and head stay the LLM's own and are neither trained nor stored; what is learnt is how
the head's few thousand tokens follow from little work.
"""

import abc
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from specinfer.train.batches import Batch, Targets
from specinfer.train.shards import Corpus


class Student(torch.nn.Module, abc.ABC):
    """The trainable part, and log-laws over a draft vocabulary."""

    pace: float = 1.0  # of the learning rate
    head: Tensor
    vocabulary: Tensor

    def __init__(self, head: Tensor, vocabulary: Tensor) -> None:
        """head [D, H] are the LLM's rows for vocabulary [D], ascending LLM ids."""
        super().__init__()
        assert head.shape[0] == len(vocabulary)
        self.register_buffer("head", head, persistent=False)
        self.register_buffer("vocabulary", vocabulary, persistent=False)

    @abc.abstractmethod
    def lesson(self, data: Targets, sequences: Sequence[int], step: int) -> Batch:
        """Lay out what is learnt from some sequences in a step."""

    @abc.abstractmethod
    def laws(self, corpus: Corpus, sequences: Sequence[int], depth: int) -> Iterable[Tensor]:
        """Return the log-laws [M, D] for all places of some sequences, level by level.

        The law at place i of level l is predicted by a draft that began l tokens before i.
        """

    @abc.abstractmethod
    def save(self, folder: Path, embedding: Tensor, licence: str) -> None:
        """Write the folder of the SSM; embedding [V, H] is the LLM's."""

    def learnt(self) -> dict[str, Tensor]:
        """Return what training changes, by name."""
        return {name: value.data for name, value in self.named_parameters() if value.requires_grad}

    def learn(self, values: dict[str, Tensor]) -> None:
        """Take over what another student of the same shape has learnt."""
        for name, value in self.learnt().items():
            value.copy_(values[name])

    def log_laws(self, rows: Tensor) -> Tensor:
        """Return the log-laws [M, D] that the head makes of rows [M, H]."""
        logits = torch.nn.functional.linear(rows, self.head.to(rows.dtype))
        return logits.float().log_softmax(-1)


def frequent(corpus: Corpus, size: int, always: Sequence[int] = ()) -> Tensor:
    """Return the draft vocabulary: the tokens of most probability in the laws, [D] ascending ids.

    The tokens of `always` (ends of answers) are in it whatever the counts.
    """
    mass = torch.zeros(int(corpus.ids.max()) + 1 + max(always, default=0))
    scored = corpus.kind > 0
    mass.index_add_(0, corpus.ids[scored].flatten().long(), corpus.probs[scored].flatten().float())
    mass[list(always)] = torch.inf
    return mass.topk(min(size, int((mass > 0).sum()))).indices.sort().values
