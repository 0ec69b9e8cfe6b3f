"""What a model is to a planner: parameters and bytes of cache a token, from a config alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specinfer.plan.errors import PlanError

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Counts of one model."""

    name: str
    parameters: int
    read: int  # parameters a pass multiplies by: all but an input embedding of its own
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    context: int

    @property
    def table(self) -> int:
        """Parameters of the head, or of an embedding."""
        return min(self.read, self.vocab * self.hidden)

    def cache_bytes(self, width: float) -> float:
        """Bytes of keys and values of one token, each number of so many bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * width


def known_shapes() -> Mapping[str, dict[str, Any]]:
    """Return configurations by name, those of the catalogue and of models often asked about."""
    text = resources.files("specinfer.plan").joinpath("models.json").read_text()
    known: Mapping[str, dict[str, Any]] = json.loads(text)
    return known


def find_shape(text: str) -> ModelShape:
    """Return the shape of a folder with config.json, a known name, or figures `layers=32,…`.

    Raises PlanError, and ModelFolderError for what the engine cannot serve.
    """
    from specinfer.model_store import CATALOGUE
    from specinfer.model_store.catalogue import find

    if "=" in text:
        return _given(text)
    folder = Path(text).expanduser()
    if folder.is_dir():
        return _from_folder(folder)
    catalogued = find(text, CATALOGUE)
    name = catalogued.name if catalogued else text.casefold()
    config = known_shapes().get(name)
    if config is None:
        raise PlanError(
            f"{text!r} is neither a folder with config.json nor a known name "
            f"({', '.join(known_shapes())}); or give figures: {_EXAMPLE}"
        )
    return shape_from(name, config)


def find_ssm(text: str, llm: ModelShape) -> ModelShape:
    """Return the shape of an SSM for an LLM, told like a model or as a folder of `specinfer train`.

    Raises PlanError, and ModelFolderError for what the engine cannot serve.
    """
    from specinfer.ssm import is_recurrent

    folder = Path(text).expanduser()
    return _recurrent(folder, llm) if is_recurrent(folder) else find_shape(text)


def _recurrent(folder: Path, llm: ModelShape) -> ModelShape:
    """Count what a recurrent SSM multiplies by; it has no layers, and caches nothing."""
    from specinfer.ssm import WEIGHTS, read_weights

    weights = read_weights(folder / WEIGHTS)
    learnt = sum(tensor.numel() for name, tensor in weights.items() if name.endswith(".int8"))
    head = len(weights["vocabulary"]) * llm.hidden
    name = folder.resolve().name
    return replace(llm, name=name, parameters=learnt, read=learnt + head, layers=0)


def shape_from(name: str, config: Mapping[str, Any]) -> ModelShape:
    """Count a model of transformers' own class, built without memory for its weights."""
    from transformers import AutoConfig

    values = dict(config)
    return _counted(name, AutoConfig.for_model(values.pop("model_type"), **values))


def _from_folder(folder: Path) -> ModelShape:
    from specinfer.llm import read_config

    return _counted(folder.resolve().name, read_config(folder))


def _counted(name: str, config: "PretrainedConfig") -> ModelShape:
    import torch
    from transformers import AutoModelForCausalLM

    from specinfer.llm import CausalLM

    kind: Any = AutoModelForCausalLM
    with torch.device("meta"):
        llm = CausalLM(kind.from_config(config), name)
    total = sum(parameter.numel() for parameter in llm.model.parameters())  # a tied one counts once
    table: Any = llm.model.get_input_embeddings()  # type: ignore[operator]
    head: Any = llm.model.get_output_embeddings()  # type: ignore[operator]
    heads = config.num_attention_heads
    return ModelShape(
        name=name,
        parameters=total,
        read=total if head.weight is table.weight else total - table.weight.numel(),
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        hidden=config.hidden_size,
        vocab=llm.vocab,
        context=llm.max_context,
    )


_EXAMPLE = "parameters=8e9,layers=32,heads=32,kv_heads=8,head_dim=128,vocab=128256,context=8192"


def _given(text: str) -> ModelShape:
    try:
        pairs = {key.strip(): float(value) for key, value in _pairs(text)}
        values = {key: int(value) for key, value in pairs.items()}
    except ValueError:
        raise PlanError(f"model: expected figures like {_EXAMPLE}, got {text!r}") from None
    values = {
        "read": values.get("parameters", 0),
        "hidden": values.get("heads", 0) * values.get("head_dim", 0),
        **values,
    }
    wanted = {field.name for field in fields(ModelShape)} - {"name"}
    if wanted != values.keys() or min(values.values()) < 1:
        wrong = sorted(wanted ^ values.keys()) or [k for k, v in values.items() if v < 1]
        raise PlanError(f"model: missing, unknown or below 1: {', '.join(wrong)}; as in {_EXAMPLE}")
    return ModelShape(name="given figures", **values)


def _pairs(text: str) -> list[tuple[str, str]]:
    parts = [part.partition("=") for part in text.split(",")]
    return [(key, value) for key, _, value in parts]
