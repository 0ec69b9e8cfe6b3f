"""Which models the lean decoder runs: those whose every feature it knows."""

from pathlib import Path

from specinfer.lean.architecture import Config
from specinfer.lean.weights import Checkpoint

# Blocks of RMSNorm, rotary attention and a gated SiLU, and nothing else.
KNOWN = frozenset({"llama", "mistral", "qwen2", "qwen3"})
# Others change their frequencies with the length of the sequence.
ROPES = frozenset({"default", "linear", "llama3", "yarn"})


def misfit(folder: Path, config: Config) -> str | None:
    """Return why the lean decoder cannot run a model folder; None where it can.

    Raises ModelFolderError for a folder without readable weights.
    """
    reason = unknown(config)
    if reason is None and "model.layers.0.self_attn.q_proj.weight" not in Checkpoint(folder):
        return "weights under other names"
    return reason


def unknown(config: Config) -> str | None:
    """Return which feature of an architecture the lean decoder lacks, if any."""
    if config.model_type not in KNOWN:
        return f"models of type {config.model_type}"
    if config.hidden_act != "silu":
        return f"the activation {config.hidden_act}"
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope not in ROPES:
        return f"rotary embeddings of type {rope}"
    return None
