"""Which SSMs `--ssm` means, and which come with a model asked for by its name."""

from pathlib import Path

import pytest

from specinfer.model_store.pools import resolve_ssms, ssms_to_serve
from specinfer.server.settings import load_settings
from specinfer.ssm import POOLS, pool_members

SHIPPED = pool_members(POOLS / "smollm2-135m-instruct")


def test_a_named_model_brings_its_pool_unless_told_otherwise(tmp_path: Path) -> None:
    assert resolve_ssms([], "default") == resolve_ssms([], "SmolLM2-135M-Instruct") == SHIPPED
    assert resolve_ssms(["none"], "default") == ()
    assert resolve_ssms([tmp_path], "default") == (tmp_path,)
    assert resolve_ssms([], "qwen2.5-coder-1.5b-instruct") == ()
    assert resolve_ssms([], tmp_path) == resolve_ssms([]) == ()


def test_a_folder_of_that_name_brings_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("default").mkdir()
    assert resolve_ssms([], "default") == ()


@pytest.mark.parametrize("value", ["none", "smollm2-135m-instruct"])
def test_the_environment_wins_over_what_is_shipped(value: str) -> None:
    environ = {"SPECINFER_SSMS": value, "SPECINFER_MODEL": "/nowhere"}
    assert ssms_to_serve([], "default", environ) is None
    assert ssms_to_serve(["none"], "default", environ) == ()
    assert ssms_to_serve([], "default", {}) == SHIPPED
    assert load_settings(environ).engine.ssms == (() if value == "none" else SHIPPED)
