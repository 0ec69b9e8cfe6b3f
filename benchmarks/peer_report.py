"""What peers.py prints and draws: medians with minimum and maximum, ratios within one prompt."""

import statistics
from pathlib import Path
from typing import Any

BASES = (
    "transformers",
    "transformers assisted",
    "ours plain int8",
    "ours plain bf16",
    "llama.cpp",
)


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def table(name: str, speed: dict[str, list[float]]) -> dict[str, Any]:
    """Print a set's medians and ratios."""
    bases = [base for base in BASES if base in speed]
    print(f"\n{name}: tokens/s (min-max)" + "".join(f"   x {base}" for base in bases))
    rows: dict[str, Any] = {}
    for contender, values in speed.items():
        ratios = {
            base: summary([own / b for own, b in zip(values, speed[base], strict=True)])
            for base in bases
        }
        rows[contender] = {"tokens_per_s": summary(values), "ratios": ratios}
        own = rows[contender]["tokens_per_s"]
        line = f"{contender:<22}{own['median']:7.1f} ({own['min']:.1f}-{own['max']:.1f})"
        print(line + "".join(f"   {r['median']:.2f} of {b}" for b, r in ratios.items()), flush=True)
    return rows


def draw(rows: dict[str, Any], path: Path) -> None:
    """Draw tokens a second by contender and set; needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots(1, len(rows), sharey=True)
    for axis, (name, row) in zip(axes, rows.items(), strict=True):
        own = [row[c]["tokens_per_s"] for c in row]
        medians = [o["median"] for o in own]
        error = [[o["median"] - o["min"] for o in own], [o["max"] - o["median"] for o in own]]
        colours = ["tab:green" if c.startswith("ours") else "tab:grey" for c in row]
        axis.barh([*row], medians, xerr=error, color=colours)
        axis.set(title=name, xlabel="tokens/s, median and range")
        axis.invert_yaxis()
    figure.savefig(path, dpi=120)
