"""GGUF -> Hugging Face folder: dequantised weights in safetensors, config, tokenizer, template."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specinfer.model_store.catalogue import StoredDtype
from specinfer.model_store.errors import ModelStoreError
from specinfer.model_store.progress import Progress

if TYPE_CHECKING:
    import torch

# ggml's tensor names -> transformers', for the two architectures of the catalogue.
_OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def convert(gguf: Path, into: Path, dtype: StoredDtype, progress: Progress) -> None:
    """Writes a complete model folder. Needs the `gguf` package; takes half a minute for 135 M.

    transformers reads config and tokenizer; the weights are taken from the file directly,
    because its own GGUF loader needs accelerate and leaves a stale quantization_config behind.
    """
    from transformers import AutoTokenizer

    into.mkdir(parents=True)
    with _quiet_transformers():
        progress.say("converting: reading the tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        tokenizer.save_pretrained(into)
        progress.say("converting: reading the configuration")
        config = _config(gguf, dtype)
        config.save_pretrained(into)
        _generation_config(config).save_pretrained(into)
    _write_weights(gguf, into / "model.safetensors", config, progress)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Its loaders print advice about GGUF that a user can do nothing with."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _config(gguf: Path, dtype: str) -> Any:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if config.model_type not in _ARCHITECTURES:
        raise ModelStoreError(f"a GGUF of type {config.model_type!r} cannot be converted")
    config.architectures = [_ARCHITECTURES[config.model_type]]
    config.dtype = dtype
    # The weights are written dequantised; a loader must not look for packed ones.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def _generation_config(config: Any) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
    )


def _write_weights(gguf: Path, target: Path, config: Any, progress: Progress) -> None:
    import gguf as ggml
    import torch
    from safetensors.torch import save_file

    progress.say("converting: reading the weights")
    tensors = ggml.GGUFReader(str(gguf)).tensors
    dtype = getattr(torch, config.dtype) if isinstance(config.dtype, str) else config.dtype
    weights: dict[str, torch.Tensor] = {}
    for done, tensor in enumerate(tensors):
        progress.items("converting tensors", done, len(tensors))
        name = _name(tensor.name)
        values = torch.from_numpy(ggml.dequantize(tensor.data, tensor.tensor_type).copy())
        weights[name] = _rotate(values, name, config).to(dtype).contiguous()
    save_file(weights, target, metadata={"format": "pt"})
    # It writes 0600; a container's or a colleague's user must be able to read a shared cache.
    target.chmod(0o644)


def _name(ggml_name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    parts = ggml_name.split(".")
    if parts[0] == "blk" and len(parts) == 4 and parts[2] in _INSIDE:
        return f"model.layers.{parts[1]}.{_INSIDE[parts[2]]}.{parts[3]}"
    if len(parts) == 2 and parts[0] in _OUTSIDE:
        return f"{_OUTSIDE[parts[0]]}.{parts[1]}"
    raise ModelStoreError(f"the GGUF holds a tensor this converter does not know: {ggml_name}")


def _rotate(values: "torch.Tensor", name: str, config: Any) -> "torch.Tensor":
    """Undo llama.cpp's interleaving of the two rotary halves in each head of q and k.

    Its llama files pair neighbouring rows, transformers pairs row i with row i + D / 2.
    Qwen2 files keep transformers' order.
    """
    if config.model_type != "llama" or not name.endswith(("q_proj.weight", "k_proj.weight")):
        return values
    heads = (
        config.num_attention_heads if name.endswith("q_proj.weight") else config.num_key_value_heads
    )
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
