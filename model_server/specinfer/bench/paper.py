"""All of the paper's tables for one pair, as a document and as pictures."""

import statistics
from pathlib import Path
from typing import Any

from specinfer.bench.tables import (
    TEMPERATURES,
    WIDTHS,
    Pair,
    Prompts,
    Say,
    acceptance,
    by_pool,
    by_verifier,
    by_width,
)


def measure(pair: Pair, name: str, prompts: Prompts, say: Say) -> dict[str, Any]:
    """Measure one prompt set; the raw numbers of Table 2 are kept for its distribution."""
    document: dict[str, Any] = {"prompts": len(prompts), "table_1": {}, "table_2": {}, "raw": {}}
    for mode, temperature in TEMPERATURES.items():
        document["table_1"][mode] = acceptance(pair, prompts, temperature)
        say(f"{name} {mode}: SSM top 1-5 has the LLM's token {_row(document['table_1'][mode])}")
        widths = by_width(pair, prompts, temperature)
        document["table_2"][mode] = [statistics.mean(widths[width]) for width in WIDTHS]
        document["raw"][mode] = {str(width): sorted(row) for width, row in widths.items()}
        say(f"{name} {mode}: tokens a step by width 1-5 {_row(document['table_2'][mode])}")
    document["table_3"] = by_verifier(pair, prompts)
    say(f"{name}: tokens a step by verifier {document['table_3']}")
    document["pool"] = by_pool(pair, prompts)
    say(f"{name}: tokens a step by pool {document['pool']}")
    return document


def _row(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def draw(path: Path, sets: dict[str, Any]) -> None:
    """Draw Table 1, Table 2 and the distribution over prompts (Fig. 9), a row a prompt set."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.5 * len(sets)), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(sets), 3, squeeze=False)
    for (name, document), (top, steps, spread) in zip(sets.items(), rows, strict=True):
        for mode in TEMPERATURES:
            top.plot(list(WIDTHS), document["table_1"][mode], "o-", label=mode)
            steps.plot(list(WIDTHS), document["table_2"][mode], "o-", label=mode)
            for width in ("1", str(max(WIDTHS))):
                values = document["raw"][mode][width]
                share = [(place + 1) / len(values) for place in range(len(values))]
                spread.step(values, share, where="post", label=f"{mode}, width {width}")
        top.set_title(f"{name}: LLM's token in the SSM's top k")
        steps.set_title(f"{name}: tokens a step by width")
        spread.set_title(f"{name}: prompts by tokens a step")
        for axes in (top, steps, spread):
            axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
