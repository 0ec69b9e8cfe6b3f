"""From a model folder to a lean decoder: linears fused, and quantized as they are read."""

import mmap
from pathlib import Path

import torch
from torch import Tensor

from specinfer.errors import ModelFolderError
from specinfer.lean.architecture import Config
from specinfer.lean.decoder import Attention, Block, Decoder, Norm
from specinfer.lean.linear import Linear, MakeLinear
from specinfer.lean.rotary import Rotary
from specinfer.lean.weights import Checkpoint, Tensors


def load_decoder(folder: Path, config: Config, dtype: torch.dtype, make: MakeLinear) -> Decoder:
    """Build the decoder of a config that fits, one layer's weights in memory at a time.

    Raises ModelFolderError, or ConfigError where `make` cannot serve this machine.
    """
    try:
        return build_decoder(Checkpoint(folder), config, dtype, make)
    except KeyError as missing:
        raise ModelFolderError(f"{folder}: cannot be loaded: no tensor {missing}") from None


def build_decoder(
    weights: Tensors, config: Config, dtype: torch.dtype, make: MakeLinear
) -> Decoder:
    """Build the decoder from tensors by their names; raises KeyError for one that is missing."""
    return _Loader(weights, config, dtype, make).decoder()


class _Loader:
    def __init__(
        self, weights: Tensors, config: Config, dtype: torch.dtype, make: MakeLinear
    ) -> None:
        self._weights, self._config, self._dtype, self._make = weights, config, dtype, make

    def decoder(self) -> Decoder:
        embedding = self._weights["model.embed_tokens.weight"]
        tied = self._config.tie_word_embeddings
        # First, since nothing else takes as much memory while it is laid out.
        head = self._linear("model.embed_tokens" if tied else "lm_head")
        return Decoder(
            embedding=embedding,
            rotary=Rotary(self._config, self._dtype),
            blocks=[self._block(layer) for layer in range(self._config.num_hidden_layers)],
            norm=self._norm("model.norm"),
            head=head,
            dtype=self._dtype,
        )

    def _block(self, layer: int) -> Block:
        own = f"model.layers.{layer}"
        return Block(
            before=self._norm(f"{own}.input_layernorm"),
            attention=self._attention(layer, f"{own}.self_attn"),
            between=self._norm(f"{own}.post_attention_layernorm"),
            gate_up=self._linear(f"{own}.mlp.gate_proj", f"{own}.mlp.up_proj"),
            down=self._linear(f"{own}.mlp.down_proj"),
        )

    def _attention(self, layer: int, own: str) -> Attention:
        config, heads = self._config, self._config.num_attention_heads
        normed = f"{own}.q_norm.weight" in self._weights
        return Attention(
            layer=layer,
            heads=heads,
            kv_heads=config.num_key_value_heads,
            width=getattr(config, "head_dim", None) or config.hidden_size // heads,
            window=_window(config, layer),
            qkv=self._linear(f"{own}.q_proj", f"{own}.k_proj", f"{own}.v_proj"),
            out=self._linear(f"{own}.o_proj"),
            q_norm=self._norm(f"{own}.q_norm") if normed else None,
            k_norm=self._norm(f"{own}.k_norm") if normed else None,
        )

    def _norm(self, name: str) -> Norm:
        # Copied: a view would keep the whole file mapped.
        weight = self._weights[f"{name}.weight"].to(self._dtype, copy=True)
        return Norm(weight, self._config.rms_norm_eps)

    def _linear(self, *names: str) -> Linear:
        """Return one linear for all names, their outputs side by side."""
        weights = [self._weights[f"{name}.weight"] for name in names]
        return self._make(_joined(weights) if names[1:] else weights[0], self._bias(names))

    def _bias(self, names: tuple[str, ...]) -> Tensor | None:
        biases = [self._weights.find(f"{name}.bias") for name in names]
        found = [bias for bias in biases if bias is not None]
        return torch.cat(found).to(self._dtype) if found else None


def _joined(weights: list[Tensor]) -> Tensor:
    """Return weights one below the other, in memory that goes back to the system once unused.

    The heap would keep holes of their size between what stays: 60 MB of a model of 135 M.
    """
    rows, columns = sum(map(len, weights)), weights[0].shape[1]
    block = mmap.mmap(-1, rows * columns * weights[0].itemsize)
    joined = torch.frombuffer(block, dtype=weights[0].dtype).view(rows, columns)
    return torch.cat(weights, out=joined)


def _window(config: Config, layer: int) -> int | None:
    """Return how far back a layer looks; Mistral tells it for all, Qwen by kinds of layers."""
    kinds = getattr(config, "layer_types", None)
    if kinds and kinds[layer] != "sliding_attention":
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window if kinds or config.model_type == "mistral" else None
