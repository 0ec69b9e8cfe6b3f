"""What the lean decoder needs to know of a config.json, read without transformers where it can be.

transformers' classes of configurations import 60 MB that nothing else needs: half of what the int8
weights of the default LLM take.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from specinfer.llm import read_config


@dataclass(frozen=True, slots=True)
class Architecture:
    """A Llama, under the names that transformers' configurations have."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_parameters: Mapping[str, Any]
    tie_word_embeddings: bool
    hidden_act: str
    model_type: str = "llama"


Config = Architecture | PretrainedConfig


def read_architecture(folder: Path) -> Config:
    """Read config.json, by transformers' class unless it tells all of a Llama's keys itself.

    Raises ModelFolderError.
    """
    try:
        values: Any = json.loads((folder / "config.json").read_bytes())
        if values["model_type"] == "llama" and (found := _complete(values)) is not None:
            return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # transformers says better what is wrong, or has a default
    return read_config(folder)


def untied(config: Config) -> Config:
    """Return a configuration whose head has weights of its own."""
    if isinstance(config, Architecture):
        return dataclasses.replace(config, tie_word_embeddings=False)
    config.tie_word_embeddings = False
    return config


def _complete(values: dict[str, Any]) -> Architecture | None:
    """Return what config.json says if its positions turn as usual; raises KeyError."""
    rope = values.get("rope_parameters") or {"rope_theta": values["rope_theta"]}
    kind = rope.get("rope_type", "default")
    if kind != "default" or values.get("rope_scaling") is not None:
        return None
    names = [field.name for field in dataclasses.fields(Architecture)]
    rope = {"rope_type": kind, "rope_theta": rope["rope_theta"]}
    width = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
    told = values | {"rope_parameters": rope, "head_dim": width}
    return Architecture(**{name: told[name] for name in names})
