"""The whole run: first lesson, boost-tuning, report, and the pool's folder (section 3.2)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from specinfer.ssm import FILE, FORMAT
from specinfer.train import report
from specinfer.train.batches import targets
from specinfer.train.boost import Round, boost
from specinfer.train.distil import Distillation, Watch
from specinfer.train.layers import cut
from specinfer.train.ranks import Ranks
from specinfer.train.recurrent import begun
from specinfer.train.settings import TrainConfig
from specinfer.train.shards import Corpus, split
from specinfer.train.student import Student, frequent


def train(
    llm: PreTrainedModel,
    corpus: Corpus,
    config: TrainConfig,
    out: Path,
    ranks: Ranks,
    watch: Callable[[str], Watch],
    *,
    ends: frozenset[int] = frozenset(),
    text: Corpus | None = None,
    licence: str = "unknown",
) -> None:
    """Train a pool for the LLM and write it to out; goes on where an earlier run was killed.

    Recurrent SSMs learn from a corpus with states, those of layers begin with the text.
    """
    training, held_out = split(corpus, config.hold_out)
    vocabulary = frequent(training, config.vocabulary, sorted(ends)).to(ranks.device)
    starts: dict[str, Student] = {}
    if "layers" in config.used_kinds:
        starts["layers"] = cut(llm, config.layers, vocabulary)
        if text is not None:
            _first_lesson(starts["layers"], text, config, out, ranks, watch("text"))
    if "recurrent" in config.used_kinds:
        starts["recurrent"] = begun(llm, config.blocks, vocabulary, config.seed)
    work = out / "work"
    rounds = boost(starts, training, config, work, ranks, lambda n: watch(f"SSM {n + 1}"))
    if ranks.first:
        document = report.measured(rounds, held_out, ranks) | {"training_laws": training.answers}
        report.write(out, document)
        _write_pool(out, llm, rounds, licence)


def _first_lesson(
    start: Student, text: Corpus, config: TrainConfig, out: Path, ranks: Ranks, watch: Watch
) -> None:
    weights = (text.kind > 0).float()
    data = targets(text, start.vocabulary.cpu(), weights)
    lesson = Distillation(start, data, config, config.text_steps, ranks)
    lesson.run(out / "work" / "text.safetensors", watch)


def _write_pool(out: Path, llm: PreTrainedModel, rounds: list[Round], licence: str) -> None:
    """Write each SSM's folder and the pool's specinfer.json, last: with it the pool is whole."""
    names = [f"ssm-{number}" for number in range(1, len(rounds) + 1)]
    lender: Any = llm
    embedding: Tensor = lender.get_input_embeddings().weight
    for name, round_ in zip(names, rounds, strict=True):
        round_.student.save(out / name, embedding, licence)
    settings = {"format": FORMAT, "role": "pool", "licence": licence, "ssms": names}
    (out / FILE).write_text(json.dumps(settings, indent=2) + "\n")
