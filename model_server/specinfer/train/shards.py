"""What the LLM said and how sure it was, on disk: shards of token sequences and top-k laws.

A shard is one safetensors file, written under another name and renamed when it is whole, so a
killed run leaves only whole shards.  The law at place i is the LLM's for the token at i + 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specinfer.train.errors import TrainError

UNSCORED, PROMPT, ANSWER = 0, 1, 2  # what the law at a place is about


@dataclass(frozen=True, slots=True)
class Corpus:
    """Sequences laid end to end; a law is the k likeliest tokens and their probabilities."""

    tokens: Tensor  # [N] int32
    offsets: Tensor  # [S + 1] int64, where each sequence starts
    kind: Tensor  # [N] uint8: UNSCORED, PROMPT or ANSWER
    ids: Tensor  # [N, k] int32, likeliest first
    probs: Tensor  # [N, k] float16; what is missing to 1 lies outside the k
    states: Tensor | None = None  # [N, H] float16, what the LLM's head reads there, if asked for

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def answers(self) -> int:
        """Laws of answers."""
        return int((self.kind == ANSWER).sum())

    def lengths(self) -> list[int]:
        lengths: list[int] = self.offsets.diff().tolist()
        return lengths

    def select(self, sequences: Sequence[int]) -> "Corpus":
        """Return these sequences alone."""
        starts = self.offsets.tolist()
        spans = [torch.arange(starts[s], starts[s + 1]) for s in sequences]
        places = torch.cat(spans) if spans else torch.zeros(0, dtype=torch.int64)
        offsets = torch.tensor([0, *(len(span) for span in spans)]).cumsum(0)
        rows = (self.tokens, self.kind, self.ids, self.probs)
        tokens, kind, ids, probs = (row[places] for row in rows)
        states = None if self.states is None else self.states[places]
        return Corpus(tokens, offsets, kind, ids, probs, states)


def write_shard(path: Path, corpus: Corpus) -> None:
    """Write a shard so that it is either absent or whole."""
    part = path.with_suffix(".part")
    names = ("tokens", "offsets", "kind", "ids", "probs")
    save_file({name: getattr(corpus, name).contiguous() for name in names}, part)
    part.replace(path)


def read_shards(folder: Path) -> Corpus:
    """Read all shards of a folder in the order of their names; raises TrainError."""
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise TrainError(f"{folder}: no shards (*.safetensors); run the data step first")
    parts = [load_file(path) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if missing := {"tokens", "offsets", "kind", "ids", "probs"} - part.keys():
            raise TrainError(f"{path}: not a shard, it lacks {sorted(missing)}")
    lengths = torch.cat([part["offsets"].diff() for part in parts])
    return Corpus(
        offsets=torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        **{
            name: torch.cat([part[name] for part in parts])
            for name in ("tokens", "kind", "ids", "probs")
        },
    )


def split(corpus: Corpus, every: int) -> tuple[Corpus, Corpus]:
    """Return (training, held-out): every so-many-th sequence is never trained on."""
    held = range(every - 1, len(corpus), every)
    rest = [s for s in range(len(corpus)) if s % every != every - 1]
    return corpus.select(rest), corpus.select(held)
