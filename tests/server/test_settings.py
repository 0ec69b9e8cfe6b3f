"""The table of settings."""

import json
from pathlib import Path

import pytest

from specinfer.config import TreeShape
from specinfer.errors import ConfigError
from specinfer.server.errors import SettingsError
from specinfer.server.settings import MODEL_FOLDER, ServerSettings, load_settings


def test_without_any_setting_the_model_is_where_sagemaker_mounts_it():
    settings = load_settings({"PATH": "/bin"})
    assert settings.engine.model == MODEL_FOLDER
    assert settings.server == ServerSettings()


def test_environment_reaches_engine_and_server_in_their_types():
    environ = {
        "SPECINFER_MODEL": "/models/llm",
        "SPECINFER_SSMS": "/models/a, /models/b",
        "SPECINFER_TREE": "1,2",
        "SPECINFER_LOOKUP": "false",
        "SPECINFER_MAX_BATCH": "4",
        "SPECINFER_TP": "2",
        "SPECINFER_DEADLINE_S": "12.5",
        "SPECINFER_TGI_OBJECT": "1",
    }
    settings = load_settings(environ)
    assert settings.engine.model == Path("/models/llm")
    assert settings.engine.ssms == (Path("/models/a"), Path("/models/b"))
    assert settings.engine.tree == TreeShape((1, 2))
    assert settings.engine.lookup is False
    assert settings.engine.max_batch == 4
    assert settings.engine.tensor_parallel == 2
    assert settings.server.deadline_s == 12.5
    assert settings.server.tgi_object is True


def write(folder, document):
    (folder / "specinfer.json").write_text(json.dumps(document))
    return {"SPECINFER_MODEL": str(folder)}


def test_the_models_own_file_is_read_and_its_paths_start_at_its_folder(tmp_path):
    environ = write(tmp_path, {"model": "llm", "ssms": ["small"], "port": 9000})
    settings = load_settings(environ)
    assert settings.engine.model == tmp_path / "llm"
    assert settings.engine.ssms == (tmp_path / "small",)
    assert settings.server.port == 9000


def test_command_line_wins_over_environment_and_that_over_the_file(tmp_path):
    environ = write(tmp_path, {"port": 1, "max_batch": 1, "queue_limit": 1})
    environ |= {"SPECINFER_PORT": "2", "SPECINFER_MAX_BATCH": "2"}
    settings = load_settings(environ, {"port": 3})
    assert settings.server.port == 3
    assert settings.engine.max_batch == 2
    assert settings.engine.queue_limit == 1


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"SPECINFER_MAX_BACH": "4"}, "did you mean max_batch (SPECINFER_MAX_BATCH)?"),
        ({"SPECINFER_XYZZY": "4"}, "SPECINFER_XYZZY is not a setting"),
        ({"SPECINFER_PORT": "eighty"}, "SPECINFER_PORT"),
        ({"SPECINFER_DEADLINE_S": "0"}, "deadline_s: must be above 0"),
        ({"SPECINFER_DTYPE": "float8"}, "SPECINFER_DTYPE"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(environ, said):
    with pytest.raises(SettingsError) as caught:
        load_settings(environ)
    assert said in str(caught.value)


def test_a_tree_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="tree"):
        load_settings({"SPECINFER_TREE": "wide"})


@pytest.mark.parametrize("content", ["{", "[]", '{"tre": "1,1"}', '{"port": "x"}'])
def test_a_wrong_file_is_refused_with_its_path(tmp_path, content):
    (tmp_path / "specinfer.json").write_text(content)
    with pytest.raises(SettingsError, match=r"specinfer\.json"):
        load_settings({"SPECINFER_MODEL": str(tmp_path)})


def test_variables_of_other_parts_are_left_alone():
    load_settings({"SPECINFER_CACHE": "/c", "SPECINFER_KERNELS": "triton"})


def test_a_folder_is_llm_pool_and_settings_in_one(tmp_path):
    pool = tmp_path / "pool"
    for name in ("ssm-1", "ssm-2"):
        (pool / name).mkdir(parents=True)
        (pool / name / "config.json").write_text("{}")
    (pool / "specinfer.json").write_text('{"role": "pool", "ssms": ["ssm-1", "ssm-2"]}')
    file = {"format": 1, "role": "llm", "licence": "MIT", "ssms": ["pool"], "tree": "1,1"}
    (tmp_path / "specinfer.json").write_text(json.dumps(file))
    settings = load_settings({"SPECINFER_MODEL": str(tmp_path)})
    assert settings.engine.ssms == (pool / "ssm-1", pool / "ssm-2")
    assert settings.engine.tree == TreeShape((1, 1))
