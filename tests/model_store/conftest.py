"""A one-file model in a wheel made here, so that the real pip can serve it without a network."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from specinfer.model_store.catalogue import CatalogueModel, Wheel
from specinfer.model_store.progress import Progress

PARTS = (b"GGUF, first half; ", b"second half")


def write_model_folder(folder: Path) -> Path:
    """The smallest folder that passes the check: a config, a tokenizer, one tensor of 4 bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + b"\0\0\0\0"
    )
    return folder


def write_wheel(folder: Path, package: str, version: str, member: str, content: bytes) -> Wheel:
    """A py3-none-any wheel with just enough metadata for pip to accept it."""
    stem = package.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    path = folder / f"{stem}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}/{member}", content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(package, version, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    return write_model_folder(tmp_path / "model")


@pytest.fixture
def make_folder() -> Callable[[Path], Path]:
    return write_model_folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def split_model(index: Path) -> CatalogueModel:
    """A model cut over two wheels of the index."""
    wheels = tuple(
        write_wheel(index, f"tiny-part{i}", "1.0", f"data/part{i}.bin", part)
        for i, part in enumerate(PARTS, 1)
    )
    whole = b"".join(PARTS)
    return CatalogueModel(
        name="tiny",
        aliases=("default",),
        summary="for tests",
        licence="Apache-2.0",
        wheels=wheels,
        wheel_bytes=1000,
        member=".bin",
        gguf_sha256=hashlib.sha256(whole).hexdigest(),
        gguf_bytes=len(whole),
        dtype="float32",
        folder_bytes=100,
    )


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def progress(out: io.StringIO) -> Progress:
    return Progress(out)
