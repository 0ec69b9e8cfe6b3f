"""A causal language model whose passes the lean decoder runs, and the choice between the two."""

import functools
import logging
import os
from pathlib import Path

import torch
from torch import Tensor

from specinfer.config import DType, Quantization
from specinfer.frame import Frame, FrameShape, pack
from specinfer.kv_cache import KVCache
from specinfer.lean.architecture import Config, read_architecture
from specinfer.lean.decoder import Decoder
from specinfer.lean.fits import misfit, unknown
from specinfer.lean.linear import Int8, MakeLinear, dense
from specinfer.lean.load import load_decoder
from specinfer.lean.native import (
    CACHED,
    Block,
    Kind,
    Library,
    NativeDecoder,
    NativeLayout,
    Packed,
    Rounded,
    compile_library,
    unfit,
    unfit_step,
)
from specinfer.lean.native.library import CompilerError, Source, find_compiler
from specinfer.lean.quantize import load_quantized
from specinfer.llm import CausalLM, Layout, resolve_dtype
from specinfer.tree_attention import ForwardPlan

log = logging.getLogger(__name__)

LAYOUTS: dict[Kind, type[Packed] | type[Rounded]] = {"int8": Packed, "bf16": Rounded}


class LeanLM(CausalLM):
    """A Llama-like model on a CPU, without transformers' modules."""

    def __init__(self, decoder: Decoder | NativeDecoder, config: Config, name: str) -> None:
        self.name = name
        self.config = config
        self.decoder = decoder

    @property
    def dtype(self) -> torch.dtype:
        return self.decoder.dtype

    @property
    def cache_dtype(self) -> torch.dtype:
        return CACHED if isinstance(self.decoder, NativeDecoder) else self.dtype

    @property
    def device(self) -> torch.device:
        return self.decoder.embedding.device

    @property
    def precision(self) -> str:
        return self.decoder.kind if isinstance(self.decoder, NativeDecoder) else str(self.dtype)

    @property
    def state_width(self) -> int:
        return self.decoder.embedding.shape[1]

    def run(self, frame: Frame, cache: KVCache) -> Tensor:
        if isinstance(self.decoder, NativeDecoder):
            return self.decoder(frame, cache)
        return self.decoder(frame, cache)[0]

    def run_with_states(self, frame: Frame, cache: KVCache) -> tuple[Tensor, Tensor]:
        if not isinstance(self.decoder, NativeDecoder):
            return self.decoder(frame, cache)
        states = torch.empty(len(frame.wanted), self.state_width)
        return self.decoder(frame, cache, states), states

    def lay_out(self, plan: ForwardPlan) -> Layout | None:
        if not isinstance(self.decoder, NativeDecoder):
            return None
        shape = FrameShape.exactly(plan)
        return NativeLayout(self.decoder, Frame.over(pack(plan, shape), shape), plan.cache)


def load_llm(
    folder: Path, dtype: DType, device: torch.device, quantization: Quantization = "none"
) -> CausalLM:
    """Load a model folder the fastest way its architecture and the device allow.

    int8 computes in float32 on a CPU.  Raises ModelFolderError or ConfigError.
    """
    quantization = resolve_quantization(quantization, folder, device)
    if quantization.endswith("weight_only") or device.type != "cpu":
        return _by_transformers(folder, dtype, device, quantization)
    config = read_architecture(folder)
    reason = misfit(folder, config)
    if reason is not None:
        log.info("%s: run by transformers' own class: no lean decoder for %s", folder, reason)
        return _by_transformers(folder, dtype, device, quantization)
    computed = resolve_dtype(dtype, device) if quantization == "none" else torch.float32
    return LeanLM(_decoder(folder, config, computed, quantization), config, folder.name)


def resolve_quantization(wanted: Quantization, folder: Path, device: torch.device) -> Quantization:
    """Turn `auto` into int8 where decoder.c can run the model, else none; the log tells why."""
    if wanted != "auto":
        return wanted
    if device.type != "cpu":
        return "none"
    config = read_architecture(folder)
    reason = misfit(folder, config)
    if reason is None:
        reason = native_library(config)[1]
    log.info("%s: quantization auto is %s", folder, f"none: {reason}" if reason else "int8")
    return "none" if reason else "int8"


def native_library(config: Config, kind: Kind = "int8") -> tuple[Library | None, str | None]:
    """Return decoder.c compiled for a kind of weights, or why it cannot run such a model here."""
    reason = unknown(config) or unfit(config, torch.cpu.get_capabilities(), kind)
    if reason is not None:
        return None, reason
    return _compiled(kind, "decoder.c")


def step_library(hidden: int, inner: int) -> tuple[Library | None, str | None]:
    """Return step.c compiled, or why it cannot run a recurrent SSM of such widths here."""
    reason = unfit_step(hidden, inner, torch.cpu.get_capabilities())
    return (None, reason) if reason is not None else _compiled("int8", "step.c")


def _compiled(kind: Kind, source: Source) -> tuple[Library | None, str | None]:
    try:
        return compile_library(find_compiler(os.environ), kind, source), None
    except CompilerError as error:
        return None, str(error)


def _decoder(
    folder: Path, config: Config, dtype: torch.dtype, quantization: Quantization
) -> Decoder | NativeDecoder:
    """Load for decoder.c, or where that cannot be for torch's operators."""
    make: MakeLinear = Int8 if quantization == "int8" else functools.partial(dense, dtype=dtype)
    if quantization == "none" and dtype != torch.bfloat16:
        return load_decoder(folder, config, dtype, make)
    kind: Kind = "int8" if quantization == "int8" else "bf16"
    library, reason = native_library(config, kind)
    if library is None:
        log.warning("%s: %s through torch's operators, which is slower: %s", folder, kind, reason)
        return load_decoder(folder, config, dtype, make)
    # Room for padded groups as well; nothing is taken before it is written.
    block = Block(2 * sum(file.stat().st_size for file in folder.glob("*.safetensors")))
    make = functools.partial(LAYOUTS[kind], block=block)
    return NativeDecoder(load_decoder(folder, config, torch.float32, make), library)


def _by_transformers(
    folder: Path, dtype: DType, device: torch.device, quantization: Quantization
) -> CausalLM:
    if quantization == "none":
        return CausalLM.load(folder, dtype, device)
    return load_quantized(folder, dtype, device, quantization)
