import argparse
from pathlib import Path

import pytest

from specinfer.model_store import ModelStoreError, command


def _run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(argv))


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECINFER_CACHE", str(tmp_path))


def test_list_tells_sizes_and_licences(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("list") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "smollm2-135m-instruct, default" in first
    assert "93 MB to fetch" in first
    assert "Apache-2.0" in first


def test_path_of_an_absent_model_tells_how_to_get_it() -> None:
    with pytest.raises(ModelStoreError, match="run `specinfer models fetch smollm2-135m-instruct`"):
        _run("path")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ModelStoreError, match="no model is called 'gpt-9'"):
        _run("fetch", "gpt-9")
