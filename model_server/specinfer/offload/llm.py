"""A causal language model whose layers are brought to the device for every pass.

Embeddings, last norm and head stay; the model class is transformers' own, built without weights.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import PretrainedConfig

from specinfer.attend import tree_attention_name
from specinfer.config import DType, Offload
from specinfer.errors import ConfigError, ModelFolderError
from specinfer.lean.weights import Checkpoint
from specinfer.llm import CausalLM, read_config, resolve_dtype
from specinfer.offload.files import places
from specinfer.offload.stream import Disk, Memory, Source, Stream
from specinfer.offload.units import Unit, units_of


class OffloadedLM(CausalLM):
    """An LLM that is larger than its device.  One thread may use it."""

    uncapturable = "has its weights brought in layer by layer"
    weights_decide = True

    def __init__(self, model: nn.Module, name: str, units: list[Unit], stream: Stream) -> None:
        super().__init__(model, name)
        self._stream = stream
        for number, unit in enumerate(units):
            unit.module.register_forward_pre_hook(_Bind(unit, number, stream, self.dtype))
            unit.module.register_forward_hook(lambda *_: stream.give_back())

    def close(self) -> None:
        """End the thread that reads weights."""
        self._stream.close()


class _Bind:
    """Has a layer wait for its weights."""

    def __init__(self, unit: Unit, number: int, stream: Stream, dtype: torch.dtype) -> None:
        self._unit, self._number, self._stream, self._dtype = unit, number, stream, dtype

    def __call__(self, *_: object) -> None:
        self._unit.bind(self._stream.take(self._number), self._dtype)


def load_offloaded(
    folder: Path, dtype: DType, device: torch.device, kind: Offload, *, slots: int
) -> OffloadedLM:
    """Load what stays and begin to read the layers; raises ConfigError, ModelFolderError."""
    if importlib.util.find_spec("accelerate") is None:
        raise ConfigError("offload needs: pip install specinfer-sagemaker[scale]")
    config = read_config(folder)
    model = _without_weights(config, resolve_dtype(dtype, device))
    units = units_of(model, config.num_hidden_layers, places(folder))
    _load_rest(model, units, Checkpoint(folder), device)
    pinned = device.type == "cuda"
    source: Source = Disk(units) if kind == "disk" else Memory(units, pinned=pinned)
    return OffloadedLM(model, folder.name, units, Stream(units, source, device, slots=slots))


def _without_weights(config: PretrainedConfig, dtype: torch.dtype) -> nn.Module:
    """Return the model with its parameters on the meta device and its buffers computed."""
    from accelerate import init_empty_weights  # type: ignore[import-untyped]
    from transformers import AutoModelForCausalLM

    with init_empty_weights(include_buffers=False):
        model: nn.Module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=dtype, attn_implementation=tree_attention_name()
        )
    return model


def _load_rest(
    model: nn.Module, units: Sequence[Unit], weights: Checkpoint, device: torch.device
) -> None:
    """Load all that is in no layer.  Rows of embeddings are looked up in the mapped file."""
    tied = model.config.tie_word_embeddings  # type: ignore[union-attr]
    embeddings = model.get_input_embeddings().weight  # type: ignore[operator]
    streamed = {id(weight) for unit in units for weight in unit.module.parameters()}
    for name, parameter in list(model.named_parameters()):
        if id(parameter) in streamed or (tied and name == "lm_head.weight"):
            continue
        value = weights.find(name)
        if value is None:
            raise ModelFolderError(f"offload: the weights hold no {name}, which is read by name")
        mapped = parameter is embeddings and not tied
        value = value.to(device, parameter.dtype, copy=not mapped)
        owner, _, own = name.rpartition(".")
        model.get_submodule(owner)._parameters[own] = nn.Parameter(value, requires_grad=False)
    for module in model.modules():
        for own, buffer in module._buffers.items():
            module._buffers[own] = None if buffer is None else buffer.to(device)
    model.tie_weights()  # type: ignore[operator]
