"""Where in a model folder's safetensors files each tensor's bytes lie, and reading them there.

https://huggingface.co/docs/safetensors/index#format
"""

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specinfer.errors import ModelFolderError

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor's bytes in a file."""

    file: Path
    start: int
    count: int
    dtype: torch.dtype
    shape: tuple[int, ...]


def places(folder: Path) -> dict[str, Place]:
    """Return the place of every tensor of a model folder by name; raises ModelFolderError."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelFolderError(f"{folder}: no safetensors weights")
    try:
        return {name: place for file in files for name, place in _places(file).items()}
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelFolderError(f"{folder}: weights that cannot be read in parts: {error}") from None


def _places(file: Path) -> dict[str, Place]:
    with file.open("rb") as opened:
        (size,) = struct.unpack("<Q", opened.read(8))
        header = json.loads(opened.read(size))
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        found[name] = Place(file, 8 + size + start, end - start, dtype, shape)
    return found


class Reader:
    """Open files to read places from."""

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}

    def read(self, place: Place, target: Tensor) -> None:
        """Fill bytes on the host, [place.count] uint8; raises OSError."""
        if place.file not in self._files:
            self._files[place.file] = os.open(place.file, os.O_RDONLY)
        view, done = memoryview(target.numpy()), 0  # type: ignore[arg-type]
        while done < place.count:
            got = os.preadv(self._files[place.file], [view[done:]], place.start + done)
            if not got:
                raise OSError(f"{place.file} has become shorter")
            done += got

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])
