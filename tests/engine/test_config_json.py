"""The lean decoder's own reading of config.json against that of transformers' class."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, LlamaConfig, PretrainedConfig

from specinfer.errors import ModelFolderError
from specinfer.lean.architecture import Architecture, read_architecture, untied
from specinfer.llm import read_config
from specinfer.testing.toy import write_tiny_model

SMALL: dict[str, Any] = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "num_hidden_layers": 5,
    "intermediate_size": 96,
    "vocab_size": 61,
    "max_position_embeddings": 77,
    "rms_norm_eps": 1e-4,
}
LLAMAS: dict[str, dict[str, Any]] = {
    "usual": {},
    "tied": {"tie_word_embeddings": True},
    "heads of a width of their own": {"head_dim": 16},
    "another turn": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
}


@pytest.mark.parametrize("name", LLAMAS)
def test_a_llama_is_read_as_transformers_reads_it(tmp_path: Path, name: str) -> None:
    LlamaConfig(**SMALL, **LLAMAS[name]).save_pretrained(tmp_path)
    found, expected = read_architecture(tmp_path), read_config(tmp_path)
    assert isinstance(found, Architecture)
    assert isinstance(expected, PretrainedConfig)
    for field in dataclasses.fields(found):
        assert getattr(found, field.name) == getattr(expected, field.name), field.name


def test_the_older_spelling_of_the_turn_is_known(tmp_path: Path) -> None:
    config = LlamaConfig(**SMALL, tie_word_embeddings=True).to_dict()
    del config["rope_parameters"], config["head_dim"]
    config |= {"rope_theta": 1234.0, "rope_scaling": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found, expected = read_architecture(tmp_path), read_config(tmp_path)
    assert isinstance(found, Architecture)
    assert found.rope_parameters["rope_theta"] == 1234.0
    assert found.rope_parameters == expected.rope_parameters
    assert found.head_dim == expected.head_dim == 8


LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize(
    ("kind", "settings", "lacks"),
    [
        ("qwen2", {}, None),
        ("llama", {"rope_parameters": LINEAR}, None),
        ("llama", {}, "num_key_value_heads"),
        ("llama", {}, "rms_norm_eps"),
        ("llama", {}, "rope_parameters"),
    ],
)
def test_what_is_not_told_or_not_usual_is_left_to_transformers(
    tmp_path: Path, kind: str, settings: dict[str, Any], lacks: str | None
) -> None:
    config = AutoConfig.for_model(kind, **(SMALL | settings)).to_dict()
    if lacks is not None:
        del config[lacks]
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = read_architecture(tmp_path)
    assert isinstance(found, PretrainedConfig)
    assert found.to_dict() == read_config(tmp_path).to_dict()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model_type": "llama", "rope_parameters": 3}'])
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelFolderError, match=str(tmp_path)):
        read_architecture(tmp_path)


def test_a_process_that_serves_a_llama_imports_no_class_of_configurations(tmp_path: Path) -> None:
    """They would import 60 MB: sympy, parts of torch, accelerate."""
    write_tiny_model(tmp_path, "llama")
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from specinfer.config import EngineConfig\n"
        "from specinfer.engine import Engine\n"
        "config = EngineConfig(model=Path(sys.argv[1]), dtype='float32', quantization='auto')\n"
        "Engine.load(config).close()\n"
        "print([n for n in ('sympy', 'transformers.models.llama') if n in sys.modules])"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("settings", [{}, {"rope_parameters": LINEAR}])
def test_an_untied_one_is_the_same_otherwise(tmp_path: Path, settings: dict[str, Any]) -> None:
    LlamaConfig(**SMALL, **settings, tie_word_embeddings=True).save_pretrained(tmp_path)
    found = untied(read_architecture(tmp_path))
    assert not found.tie_word_embeddings
    assert found.hidden_size == 48
