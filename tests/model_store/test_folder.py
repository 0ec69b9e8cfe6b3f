import json
from collections.abc import Callable
from pathlib import Path

import pytest

from specinfer.model_store import ModelStoreError, check_folder

Damage = Callable[[Path], object]


def test_a_complete_folder_passes(model_folder: Path) -> None:
    assert check_folder(model_folder) == model_folder


def test_an_ssm_needs_no_tokenizer_of_its_own(model_folder: Path) -> None:
    (model_folder / "tokenizer.json").unlink()
    assert check_folder(model_folder, tokenizer=False) == model_folder


def test_a_vocabulary_with_merges_is_a_tokenizer(model_folder: Path) -> None:
    (model_folder / "tokenizer.json").unlink()
    (model_folder / "vocab.json").touch()
    (model_folder / "merges.txt").touch()
    assert check_folder(model_folder) == model_folder


def _append(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"!")


def _truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _gguf_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.gguf")


def _half_sharded(folder: Path) -> None:
    index = {"weight_map": {"w": "model.safetensors", "v": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _lfs_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "broken config": (lambda f: (f / "config.json").write_text("{"), "cannot be read as JSON"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "not list"),
    "no model type": (lambda f: (f / "config.json").write_text("{}"), "names no model_type"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"has no \*.safetensors$"),
    "GGUF only": (_gguf_only, r"it has model.gguf; convert"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer"),
    "truncated": (_truncate, "is damaged"),
    "too long": (_append, "is damaged"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "not a whole"),
    "garbage": (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "not a whole"),
    "bad header": (
        lambda f: (f / "model.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"[]"),
        "header cannot be read",
    ),
    "missing shard": (_half_sharded, "lacks 1 of 2 weight files: model-2.safetensors"),
    "LFS pointer": (_lfs_pointer, "git lfs pull"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_each_defect_is_told_in_one_line(model_folder: Path, case: str) -> None:
    damage, message = DAMAGES[case]
    damage(model_folder)
    with pytest.raises(ModelStoreError, match=message) as caught:
        check_folder(model_folder)
    assert "\n" not in str(caught.value)
    assert str(model_folder) in str(caught.value)


def test_a_file_is_not_a_model(model_folder: Path) -> None:
    with pytest.raises(ModelStoreError, match="is not a folder"):
        check_folder(model_folder / "model.safetensors")
