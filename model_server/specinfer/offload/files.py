"""Where in a model folder's safetensors files each tensor's bytes lie, and reading them there.

Reads go past the page cache where the file system allows it: weights that do not fit into memory
would only push everything else out of it, and copying them costs a core.
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

BLOCK = 4096  # what direct reads are aligned to
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
    """Open files to read blocks from."""

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}

    def read(self, file: Path, start: int, target: Tensor) -> None:
        """Fill `target`, bytes on the host, up to the end of the file; raises OSError.

        start, target's address and its length are multiples of BLOCK.
        """
        if file not in self._files:
            self._files[file] = _open(file)
        view, done = memoryview(target.numpy()), 0  # type: ignore[arg-type]
        while done < len(view):
            got = os.preadv(self._files[file], [view[done:]], start + done)
            done += got
            if got % BLOCK or not got:
                break
        if start + done < min(start + len(view), file.stat().st_size):
            raise OSError(f"{file} could not be read from {start + done}")

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])


def aligned(count: int, *, pinned: bool = False) -> Tensor:
    """Return bytes on the host whose address is a multiple of BLOCK."""
    room = torch.empty(count + BLOCK, dtype=torch.uint8, pin_memory=pinned)
    start = -room.data_ptr() % BLOCK
    return room[start : start + count]


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # tmpfs, for one, has no direct reads, nor a disk to wait for
        return os.open(file, os.O_RDONLY)
