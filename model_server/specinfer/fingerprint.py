"""A model folder's revision: what has to change whenever its answers may change."""

import hashlib
from pathlib import Path

BLOCK = 1 << 16
BLOCKS = 64  # read of each weight file; a fine-tune changes nearly every one of them


def fingerprint(folder: Path, dtype: str) -> str:
    """Return 16 hex digits over configuration, tokenizer, weights and the type computed in.

    Settings are read whole, weight files by size and by evenly spaced blocks: 4 MiB a file
    instead of gigabytes at every start.
    """
    digest = hashlib.sha256(dtype.encode())
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json" or path.name.startswith("chat_template"):
            digest.update(path.name.encode() + path.read_bytes())
        elif path.suffix == ".safetensors":
            digest.update(f"{path.name}:{path.stat().st_size}".encode())
            _add_blocks(digest, path)
    return digest.hexdigest()[:16]


def _add_blocks(digest: "hashlib._Hash", path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        for block in range(BLOCKS):
            file.seek(max(0, size - BLOCK) * block // (BLOCKS - 1))
            digest.update(file.read(BLOCK))
