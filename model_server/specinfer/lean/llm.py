"""A causal language model whose passes the lean decoder runs, and the choice between the two."""

import logging
from pathlib import Path

import torch
from torch import Tensor
from transformers import PretrainedConfig

from specinfer.config import DType, Quantization
from specinfer.errors import ConfigError
from specinfer.frame import Frame
from specinfer.kv_cache import KVCache
from specinfer.lean.decoder import Decoder
from specinfer.lean.fits import misfit
from specinfer.lean.linear import Dense, Int8, quantize_linears
from specinfer.lean.load import load_decoder
from specinfer.llm import CausalLM, Pass, read_config, resolve_dtype
from specinfer_kernels import plan_attention

log = logging.getLogger(__name__)


class LeanLM(CausalLM):
    """A Llama-like model on a CPU, without transformers' modules."""

    def __init__(self, decoder: Decoder, config: PretrainedConfig, name: str) -> None:
        self.name = name
        self.config = config
        self._decoder = decoder

    @property
    def dtype(self) -> torch.dtype:
        return self._decoder.dtype

    @property
    def device(self) -> torch.device:
        return self._decoder.embedding.device

    def run(self, frame: Frame, cache: KVCache) -> Tensor:
        attention = plan_attention(frame.batch, dtype=cache.kv.dtype)
        return self._decoder(frame, Pass(frame.slots, attention, cache))


def load_llm(
    folder: Path, dtype: DType, device: torch.device, quantization: Quantization = "none"
) -> CausalLM:
    """Load a model folder the fastest way its architecture and the device allow.

    Quantized models compute in float32.  Raises ModelFolderError or ConfigError.
    """
    if quantization != "none" and device.type != "cpu":
        raise ConfigError(f"quantization: {quantization} runs on a CPU, not on {device}")
    if device.type != "cpu":
        return CausalLM.load(folder, dtype, device)
    config = read_config(folder)
    reason = misfit(folder, config)
    if reason is not None:
        log.info("%s: run by transformers' own class: no lean decoder for %s", folder, reason)
        return _by_transformers(folder, dtype, device, quantization)
    make = Dense if quantization == "none" else Int8
    computed = resolve_dtype(dtype, device) if quantization == "none" else torch.float32
    return LeanLM(load_decoder(folder, config, computed, make), config, folder.name)


def _by_transformers(
    folder: Path, dtype: DType, device: torch.device, quantization: Quantization
) -> CausalLM:
    if quantization == "none":
        return CausalLM.load(folder, dtype, device)
    llm = CausalLM.load(folder, "float32", device)
    quantize_linears(llm.model)
    return llm
