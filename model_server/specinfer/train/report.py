"""What training has come to, as JSON and as a picture: loss, agreement, coverage of the pool."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specinfer.train.boost import Round
from specinfer.train.measure import coverage, hits, predictions, tokens_per_step
from specinfer.train.ranks import Ranks
from specinfer.train.shards import Corpus

WIDTH = 5  # the paper's tables go to five
DEPTH = 8


def measured(rounds: Sequence[Round], held_out: Corpus, ranks: Ranks) -> dict[str, Any]:
    """Measure the pool on sequences it was not trained on; shares are of answers' places."""
    width = min(WIDTH, *(len(round_.student.vocabulary) for round_ in rounds))
    found = [predictions(r.student, held_out, width, ranks, DEPTH) for r in rounds]
    return {
        "held_out_laws": held_out.answers,
        "ssms": [
            {
                "kind": round_.kind,
                "log": round_.log,
                "dropped": round_.dropped,
                "coverage_top_k": coverage(own[:, 0], held_out),
                "tokens_per_step_by_width": _by_width(own, held_out),
            }
            for round_, own in zip(rounds, found, strict=True)
        ],
        "pool_by_size": [_pool(found[: size + 1], held_out) for size in range(len(found))],
    }


def _by_width(found: Tensor, corpus: Corpus) -> list[float]:
    """Return the tokens a step of one SSM's complete trees of width 1 … k."""
    widths = range(1, found.shape[2] + 1)
    return [tokens_per_step([hits(found[..., :width], corpus)], corpus, DEPTH) for width in widths]


def _pool(found: Sequence[Tensor], corpus: Corpus) -> dict[str, float]:
    """Set the merged chains of the first SSMs against the first SSM alone, equally many tokens."""
    size = len(found)
    chains = [hits(own[..., :1], corpus) for own in found]
    return {
        "ssms": size,
        "coverage_merged": coverage(torch.stack([own[:, 0, 0] for own in found], 1), corpus)[-1],
        "coverage_first_alone": coverage(found[0][:, 0, :size], corpus)[-1],
        "tokens_per_step_merged": tokens_per_step(chains, corpus, DEPTH),
    }


def write(folder: Path, document: dict[str, Any]) -> None:
    """Write report.json and report.png."""
    (folder / "report.json").write_text(json.dumps(document, indent=2) + "\n")
    draw(folder / "report.png", document)


def draw(path: Path, document: dict[str, Any]) -> None:
    """Draw loss and agreement by step, and coverage by the pool's size."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    loss, agreement, cover = figure.subplots(1, 3)
    for number, ssm in enumerate(document["ssms"], 1):
        steps = [entry["step"] for entry in ssm["log"]]
        loss.plot(steps, [entry["loss"] for entry in ssm["log"]], label=f"SSM {number}")
        agreement.plot(steps, [entry["agreement"] for entry in ssm["log"]], label=f"SSM {number}")
    pool = document["pool_by_size"]
    sizes = [entry["ssms"] for entry in pool]
    cover.plot(sizes, [e["coverage_merged"] for e in pool], "o-", label="pool, one token each")
    cover.plot(sizes, [e["coverage_first_alone"] for e in pool], "s--", label="SSM 1, as many")
    cover.set_xticks(sizes)
    for axes, title in ((loss, "loss"), (agreement, "agreement"), (cover, "held-out coverage")):
        axes.set_title(title)
        axes.set_xlabel("SSMs" if axes is cover else "steps")
        axes.legend()
    figure.savefig(path, dpi=110)
