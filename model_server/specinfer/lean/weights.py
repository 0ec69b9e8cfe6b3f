"""A checkpoint's tensors by name, read from memory-mapped safetensors one at a time."""

import json
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specinfer.errors import ModelFolderError

TOGETHER = 4096  # rows
INDEX = "model.safetensors.index.json"


class Tensors(Protocol):
    """Tensors by name."""

    def __contains__(self, name: object, /) -> bool: ...

    def __getitem__(self, name: str, /) -> Tensor: ...

    def find(self, name: str) -> Tensor | None: ...


class Checkpoint:
    """The tensors of a model folder.  What was read is unmapped once its tensor is dropped."""

    def __init__(self, folder: Path) -> None:
        """List the names; raises ModelFolderError where there are no safetensors weights."""
        try:
            self._files = _files(folder)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise ModelFolderError(f"{folder}: no readable safetensors weights: {error}") from error

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def names(self) -> list[str]:
        return list(self._files)

    def __getitem__(self, name: str) -> Tensor:
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def find(self, name: str) -> Tensor | None:
        """Return a tensor, or None where the checkpoint has no such name."""
        if name not in self._files:
            return None
        with safe_open(self._files[name], "pt") as file:
            found: Tensor = file.get_tensor(name)
        return found

    def rows(self, name: str, places: Tensor) -> Tensor:
        """Return some rows of a matrix, places ascending, with few of the others ever in memory."""
        count = len(self[name])
        parts = []
        for start in range(0, count, TOGETHER):  # mapped anew, so that what was read goes again
            end = min(start + TOGETHER, count)
            parts.append(self[name][places[(places >= start) & (places < end)]])
        return torch.cat(parts)


def _files(folder: Path) -> dict[str, Path]:
    index = folder / INDEX
    if index.is_file():
        names: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
        return {name: folder / file for name, file in names.items()}
    single = folder / "model.safetensors"
    with safe_open(single, "pt") as file:
        return dict.fromkeys(file.keys(), single)
