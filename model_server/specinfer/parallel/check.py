"""Which models can be split among how many ranks, and on what machine."""

import importlib.util

import torch

from specinfer.config import EngineConfig
from specinfer.errors import ConfigError
from specinfer.llm import read_config, resolve_device

# What our caches rely on: a rank computes keys and values of its own heads only.
SPLIT_HEADS = {"q_proj", "k_proj", "v_proj"}


def check_split(config: EngineConfig, ranks_here: int) -> None:
    """Refuse what cannot run; raises ConfigError, ModelFolderError."""
    if importlib.util.find_spec("accelerate") is None:  # transformers loads shares with it
        raise ConfigError("tensor_parallel needs: pip install specinfer-sagemaker[scale]")
    _check_model(config)
    if resolve_device(config.device).type == "cuda":
        gpus = torch.cuda.device_count()
        if ranks_here > gpus:
            raise ConfigError(f"tensor_parallel: {ranks_here} ranks, one a GPU, on {gpus} GPUs")


def _check_model(config: EngineConfig) -> None:
    model = read_config(config.model)
    plan = getattr(model, "base_model_tp_plan", None) or {}
    split = {name.rsplit(".", 1)[-1] for name, style in plan.items() if style == "colwise"}
    if not split >= SPLIT_HEADS:
        raise ConfigError(
            f"tensor_parallel: transformers has no plan that splits the heads of {model.model_type}"
        )
    heads = model.num_attention_heads
    kv_heads = getattr(model, "num_key_value_heads", None) or heads
    ranks = config.tensor_parallel
    if heads % ranks or kv_heads % ranks:
        possible = [n for n in range(1, kv_heads + 1) if not (heads % n or kv_heads % n)]
        raise ConfigError(
            f"tensor_parallel: {ranks} ranks cannot share {heads} query and {kv_heads} key/value "
            f"heads; possible are {', '.join(map(str, possible))}"
        )
