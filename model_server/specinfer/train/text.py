"""Plain text as a first lesson: its own next tokens are the targets, so no LLM has to run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from specinfer.train.errors import TrainError
from specinfer.train.shards import ANSWER, UNSCORED, Corpus

WINDOW = 256  # tokens of a sequence
SUFFIXES = {".py", ".md", ".rst", ".txt"}


def text_corpus(paths: Sequence[Path], encode: Any) -> Corpus:
    """Cut the text files under paths into windows; each law is the next token with certainty.

    Raises TrainError where there is no text.
    """
    windows: list[list[int]] = []
    for file in sorted(file for path in paths for file in _files(path)):
        ids = encode(file.read_text(errors="replace"))
        cuts = range(0, len(ids) - WINDOW // 2, WINDOW)
        windows += [ids[at : at + WINDOW] for at in cuts]
    if not windows:
        raise TrainError(f"no text of any length under {', '.join(map(str, paths))}")
    tokens = torch.tensor([token for window in windows for token in window], dtype=torch.int32)
    offsets = torch.tensor([0, *map(len, windows)]).cumsum(0)
    ids = torch.zeros(len(tokens), 1, dtype=torch.int32)
    ids[:-1, 0] = tokens[1:]
    probs = torch.ones(len(tokens), 1, dtype=torch.float16)
    kind = torch.full((len(tokens),), ANSWER, dtype=torch.uint8)
    kind[offsets[1:] - 1] = UNSCORED
    return Corpus(tokens, offsets, kind, ids, probs)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    return [file for file in found if is_own(file, path)]


def is_own(file: Path, folder: Path) -> bool:
    """Tell whether a file belongs to a folder's project, not to packages installed inside it."""
    return "site-packages" not in file.relative_to(folder).parts
