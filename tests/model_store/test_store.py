import io
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from specinfer.model_store import (
    CATALOGUE,
    CatalogueModel,
    ModelStore,
    ModelStoreError,
    Progress,
    cache_folder,
    resolve_model,
)
from specinfer.model_store.catalogue import Wheel
from specinfer.model_store.pip_download import download

MakeFolder = Callable[[Path], Path]


class FakeConvert:
    """Writes a folder that passes the check, and remembers what it was given."""

    def __init__(self, make_folder: MakeFolder) -> None:
        self.seen: list[bytes] = []
        self._make_folder = make_folder

    def __call__(self, gguf: Path, into: Path, dtype: str, progress: Progress) -> None:
        self.seen.append(gguf.read_bytes())
        self._make_folder(into)


@pytest.fixture
def convert(make_folder: MakeFolder) -> FakeConvert:
    return FakeConvert(make_folder)


@pytest.fixture
def store(
    tmp_path: Path,
    index: Path,
    split_model: CatalogueModel,
    convert: FakeConvert,
    progress: Progress,
) -> ModelStore:
    """Takes the wheels by copying: pip itself costs a second a call."""

    def copy(wheels: Sequence[Wheel], total: int, into: Path, progress: Progress) -> list[Path]:
        shutil.copytree(index, into)
        return sorted(into.iterdir())

    return ModelStore(tmp_path / "cache", (split_model,), progress, copy, convert)


def _left_overs(store: ModelStore, model: CatalogueModel) -> list[str]:
    return [p.name for p in store.path(model).parent.iterdir() if p.name.startswith("part-")]


def test_a_model_is_fetched_once_and_found_afterwards(
    store: ModelStore, split_model: CatalogueModel, convert: FakeConvert, out: io.StringIO
) -> None:
    store = replace(store, download=download)
    first = resolve_model("default", store=store)
    second = resolve_model("TINY", store=store)
    assert first == second == store.path(split_model)
    assert convert.seen == [b"GGUF, first half; second half"]
    assert "fetching tiny once" in out.getvalue()
    assert not _left_overs(store, split_model)


def test_weights_with_another_hash_are_not_kept(
    store: ModelStore, split_model: CatalogueModel
) -> None:
    forged = replace(split_model, gguf_sha256="0" * 64)
    with pytest.raises(ModelStoreError, match="not the pinned 0000"):
        store.get(forged)
    assert not store.has(forged)
    assert not _left_overs(store, forged)


def test_a_failed_conversion_leaves_nothing_behind(
    store: ModelStore, split_model: CatalogueModel, convert: FakeConvert
) -> None:
    def fail(gguf: Path, into: Path, dtype: str, progress: Progress) -> None:
        into.mkdir()
        raise ModelStoreError("out of ideas")

    with pytest.raises(ModelStoreError, match="out of ideas"):
        replace(store, convert=fail).get(split_model)
    assert not _left_overs(store, split_model)
    assert store.get(split_model).is_dir()


def test_two_at_once_fetch_once(
    store: ModelStore, split_model: CatalogueModel, convert: FakeConvert
) -> None:
    threads = [threading.Thread(target=store.get, args=(split_model,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(convert.seen) == 1


KILLED_MIDWAY = """
import fcntl, sys, time
from pathlib import Path
home = Path(sys.argv[1])
(home / "part-dead").mkdir(parents=True)
lock = (home / "lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


def test_a_killed_fetch_neither_blocks_nor_litters(
    store: ModelStore, split_model: CatalogueModel
) -> None:
    home = store.path(split_model).parent
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_MIDWAY, str(home)], stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "locked\n"
        victim.send_signal(signal.SIGKILL)
    assert store.get(split_model).is_dir()
    assert not _left_overs(store, split_model)


def test_offline_without_cache_is_one_sentence_that_says_what_to_do(
    store: ModelStore, split_model: CatalogueModel, index: Path
) -> None:
    for wheel in index.glob("*.whl"):
        wheel.unlink()
    with pytest.raises(ModelStoreError) as caught:
        replace(store, download=download).get(split_model)
    message = str(caught.value)
    assert "\n" not in message
    assert "`specinfer models fetch tiny`" in message
    assert str(store.root) in message


def test_a_damaged_cached_model_says_what_to_delete(
    store: ModelStore, split_model: CatalogueModel
) -> None:
    (store.get(split_model) / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelStoreError, match="delete .* and run `specinfer models fetch tiny`"):
        store.get(split_model)


def test_a_cache_that_cannot_be_written_is_named(
    store: ModelStore, split_model: CatalogueModel, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelStoreError, match="choose another folder with SPECINFER_CACHE"):
        replace(store, root=tmp_path / "file").get(split_model)


def test_too_little_disk_is_told_before_the_download(
    store: ModelStore, split_model: CatalogueModel
) -> None:
    with pytest.raises(ModelStoreError, match=r"needs 1000000.0 GB .* free"):
        store.get(replace(split_model, folder_bytes=10**15))


def test_an_existing_folder_wins_over_a_name(
    store: ModelStore, make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "default")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("default", store=store) == tmp_path / "default"


def test_an_unknown_name_lists_the_known_ones(store: ModelStore) -> None:
    with pytest.raises(ModelStoreError, match=r"'gpt-9' is neither .* \(tiny\)"):
        resolve_model("gpt-9", store=store)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SPECINFER_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/specinfer"),
        ({}, str(Path.home() / ".cache" / "specinfer")),
    ],
)
def test_where_the_cache_is(environ: dict[str, str], expected: str) -> None:
    assert str(cache_folder(environ)) == expected


def test_every_catalogue_entry_is_pinned() -> None:
    for model in CATALOGUE:
        hashes = [model.gguf_sha256, *(wheel.sha256 for wheel in model.wheels)]
        assert all(len(bytes.fromhex(digest)) == 32 for digest in hashes), model.name
        assert len(set(hashes)) == len(hashes), model.name
