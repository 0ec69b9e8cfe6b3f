"""Is this a Hugging Face model folder that can be served? Told before anything heavy is loaded."""

import json
from pathlib import Path
from typing import Any

from specinfer.model_store.errors import ModelStoreError

_TOKENIZER_FILES = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
_LFS_POINTER = b"version https://git-lfs"


def check_folder(folder: Path, *, tokenizer: bool = True) -> Path:
    """`folder`, resolved, if it has a config, whole safetensors and (for an LLM) a tokenizer.

    Headers and sizes are read, never the weights: milliseconds even for large models.
    """
    if not folder.is_dir():
        raise ModelStoreError(f"{folder} is not a folder; a model is a Hugging Face folder")
    if tokenizer or _has_config(folder):
        _check_config(folder)
    for weights in _weight_files(folder):
        _check_safetensors(weights)
    if tokenizer and not any(all((folder / f).is_file() for f in s) for s in _TOKENIZER_FILES):
        raise ModelStoreError(
            f"{folder} has no tokenizer (tokenizer.json, tokenizer.model, or vocab.json with "
            "merges.txt)"
        )
    return folder.resolve()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelStoreError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(document, dict):
        raise ModelStoreError(f"{path} should hold a JSON object, not {type(document).__name__}")
    return document


def _has_config(folder: Path) -> bool:
    """Tell whether an SSM's folder is to have an architecture of its own."""
    from specinfer.ssm import is_recurrent  # brings torch, as naming an SSM does

    return not is_recurrent(folder)


def _check_config(folder: Path) -> None:
    path = folder / "config.json"
    if not path.is_file():
        raise ModelStoreError(f"{folder} has no config.json; a model is a Hugging Face folder")
    if "model_type" not in _read_json(path):
        raise ModelStoreError(f"{path} names no model_type, so its architecture is unknown")


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _shards(index)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        others = sorted(p.name for p in folder.glob("*") if p.suffix in {".bin", ".pt", ".gguf"})
        hint = f" (it has {', '.join(others)}; convert them first)" if others else ""
        raise ModelStoreError(f"{folder} has no *.safetensors{hint}")
    return files


def _shards(index: Path) -> list[Path]:
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelStoreError(f"{index} has no weight_map")
    shards = [index.parent / str(name) for name in sorted(set(weight_map.values()))]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise ModelStoreError(
            f"{index.parent} lacks {len(missing)} of {len(shards)} weight files: {missing[0]} …"
        )
    return shards


def _check_safetensors(path: Path) -> None:
    """A header of little-endian u64 length + JSON, then exactly the bytes it announces."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(len(_LFS_POINTER))
        if head == _LFS_POINTER:
            raise ModelStoreError(f"{path} is a Git LFS pointer; run `git lfs pull` in its clone")
        length = int.from_bytes(head[:8], "little")
        if size < 8 or length > size - 8:
            raise ModelStoreError(f"{path} is not a whole safetensors file ({size} bytes)")
        file.seek(8)
        expected = 8 + length + _data_bytes(file.read(length), path)
    if size != expected:
        raise ModelStoreError(f"{path} is damaged: {size} bytes, its header says {expected}")


def _data_bytes(header: bytes, path: Path) -> int:
    try:
        entries = json.loads(header)
        ends = [entry["data_offsets"][1] for k, entry in entries.items() if k != "__metadata__"]
        return int(max(ends, default=0))
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ModelStoreError(f"{path} is damaged: its header cannot be read") from error
