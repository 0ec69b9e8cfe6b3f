"""A model artefact: the checked files of a model folder, the same bytes each time.

https://docs.aws.amazon.com/sagemaker/latest/dg/large-model-inference-uncompressed.html
"""

import gzip
import hashlib
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specinfer.deploy.errors import DeployError
from specinfer.model_store.folder import check_folder
from specinfer.server.settings import load_settings

# What serving reads.  Other formats of the same weights would only be paid for.
SUFFIXES = frozenset({".json", ".safetensors", ".model", ".txt", ".jinja"})
MAX_NAME = 255  # bytes of a file's name, SageMaker's limit


@dataclass(frozen=True, slots=True)
class Artefact:
    """Files of a folder, by their paths inside it, in order."""

    root: Path
    names: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over names and contents, in hexadecimal."""
        total = hashlib.sha256()
        for name in self.names:
            with (self.root / name).open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            total.update(f"{content}  {name}\n".encode())
        return total.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum((self.root / name).stat().st_size for name in self.names)

    def write_folder(self, target: Path) -> None:
        """Copy the files; the folder must not exist yet."""
        if target.exists():
            raise DeployError(f"{target} exists already")
        for name in self.names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / name, target / name)

    def write_tar(self, target: Path) -> None:
        """Write a model.tar.gz without owners or times in it."""
        with (
            target.open("wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0, compresslevel=1) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for name in self.names:
                self._add(tar, name)

    def _add(self, tar: tarfile.TarFile, name: str) -> None:
        info = tarfile.TarInfo(name)  # mode 0644, times and owners 0
        info.size = (self.root / name).stat().st_size
        with (self.root / name).open("rb") as file:
            tar.addfile(info, file)


def check_artefact(folder: Path) -> Artefact:
    """Read a model folder as the container will; raises SpecInferError for what it would refuse."""
    if not folder.is_dir():
        raise DeployError(f"{folder} is not a folder")
    engine = load_settings({"SPECINFER_MODEL": str(folder)}).engine
    for model in (engine.model, *engine.ssms):
        if not model.resolve().is_relative_to(folder.resolve()):
            raise DeployError(f"{model} is outside {folder}, so the container would not have it")
    check_folder(engine.model)
    for ssm in engine.ssms:
        check_folder(ssm, tokenizer=False)
    return Artefact(folder, tuple(sorted(_names(folder))))


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        if path.is_file() and not hidden and path.suffix in SUFFIXES:
            if len(path.name.encode()) > MAX_NAME:
                raise DeployError(f"{name}: a file name may have {MAX_NAME} bytes")
            yield name.as_posix()
