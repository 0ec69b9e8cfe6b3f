"""The whole run: first lesson, boost-tuning, report, and the pool's folder (section 3.2)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from specinfer.ssm import FILE, FORMAT, save_ssm
from specinfer.train import report
from specinfer.train.batches import targets
from specinfer.train.boost import Round, boost
from specinfer.train.distil import Distillation, Watch
from specinfer.train.ranks import Ranks
from specinfer.train.settings import TrainConfig
from specinfer.train.shards import Corpus, split
from specinfer.train.student import Student, cut, frequent


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
    """Train a pool for the LLM and write it to out; goes on where an earlier run was killed."""
    training, held_out = split(corpus, config.hold_out)
    vocabulary = frequent(training, config.vocabulary, sorted(ends)).to(ranks.device)
    start = cut(llm, config.layers, vocabulary)
    if text is not None:
        _first_lesson(start, text, config, out, ranks, watch("text"))
    work = out / "work"
    rounds = boost(start, training, config, work, ranks, lambda n: watch(f"SSM {n + 1}"))
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
    prefix = llm.base_model_prefix
    for name, round_ in zip(names, rounds, strict=True):
        student = round_.student
        learnt = {f"{prefix}.{key}": value for key, value in student.learnt().items()}
        about = {"licence": licence}
        save_ssm(out / name, student.body.config, learnt, student.vocabulary, embedding, about)
    settings = {"format": FORMAT, "role": "pool", "licence": licence, "ssms": names}
    (out / FILE).write_text(json.dumps(settings, indent=2) + "\n")
