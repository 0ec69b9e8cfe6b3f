"""The shards of a batch: parts of the input, and the files of what is done.

A shard's answers are written beside the output under another name, synced and renamed: after a
kill each shard is whole or absent.  What belongs to another input is never taken for this one's.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specinfer.batch.errors import BatchError


@dataclass(frozen=True, slots=True)
class Shards:
    """The lines of one input in groups, and the folder of finished groups."""

    rows: Sequence[bytes]
    size: int  # rows of a shard
    output: Path
    label: str  # what else answers depend on: the model or the server

    @classmethod
    def of(cls, source: Path, output: Path, size: int, label: str) -> "Shards":
        """Read the input's lines, blank ones left out; raises BatchError."""
        try:
            rows = [line for line in source.read_bytes().splitlines() if line.strip()]
        except OSError as error:
            raise BatchError(f"{source}: {error.strerror}") from None
        if not rows:
            raise BatchError(f"{source} has no lines")
        if output.exists():
            raise BatchError(f"{output} exists already; move it away to run the batch again")
        return cls(rows, size, output, label)

    @property
    def folder(self) -> Path:
        return self.output.with_name(f"{self.output.name}.parts")

    def open(self) -> list[int]:
        """Return the shards that are still to do; raises BatchError for another batch's parts."""
        told = json.dumps(self._identity(), sort_keys=True)
        manifest = self.folder / "batch.json"
        if self.folder.exists() and manifest.exists() and manifest.read_text() != told:
            raise BatchError(
                f"{self.folder} holds parts of another input, model or shard size; "
                "run that batch to its end or delete the folder"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        _written(manifest, told.encode())
        return [shard for shard in range(self.count) if not self._file(shard).exists()]

    @property
    def count(self) -> int:
        return -(-len(self.rows) // self.size)

    def lines(self, shard: int) -> Sequence[bytes]:
        return self.rows[shard * self.size : (shard + 1) * self.size]

    def finish(self, shard: int, answers: bytes) -> None:
        """Keep a shard's answers, one a line; raises BatchError for any other number of them."""
        expected, found = len(self.lines(shard)), len(answers.splitlines())
        if found != expected:
            raise BatchError(f"{found} answers to the {expected} lines of shard {shard}")
        _written(self._file(shard), answers)

    def close(self) -> None:
        """Put all shards together as the output, and drop them."""
        whole = self.folder / "whole"
        with whole.open("wb") as out:
            for shard in range(self.count):
                out.write(self._file(shard).read_bytes())
            _sync(out.fileno())
        whole.replace(self.output)
        shutil.rmtree(self.folder)

    def _file(self, shard: int) -> Path:
        return self.folder / f"{shard:06}.jsonl"

    def _identity(self) -> dict[str, object]:
        digest = hashlib.sha256(b"\n".join(self.rows)).hexdigest()
        return {"input": digest, "size": self.size, "label": self.label}


def _written(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(data)
        _sync(file.fileno())
    part.replace(path)


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)
