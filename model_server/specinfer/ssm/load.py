"""SSMs that lean on their LLM: they borrow its embedding and head, and know few of its tokens.

Their folders are told in folder.py.  Any other folder is a model of its own with the LLM's
tokenizer.
"""

import functools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specinfer.attend import tree_attention_name
from specinfer.config import EngineConfig
from specinfer.errors import ModelFolderError
from specinfer.lean import LeanLM, load_llm
from specinfer.lean.architecture import Config, read_architecture, untied
from specinfer.lean.linear import Int8, MakeLinear, dense
from specinfer.lean.llm import native_library
from specinfer.lean.load import build_decoder
from specinfer.lean.native import GROUP, Block, Library, NativeDecoder, Packed
from specinfer.lean.quantize import quantize
from specinfer.lean.weights import Checkpoint
from specinfer.llm import CausalLM, read_config
from specinfer.ssm.folder import (
    WEIGHTS,
    is_borrowing,
    probe,
    read_settings,
    read_weights,
    restored,
)
from specinfer.ssm.recurrent import RecurrentSSM, load_recurrent

log = logging.getLogger(__name__)

HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class SSM:
    """A drafting model; its logits are over vocabulary [D], ascending LLM ids, or all tokens."""

    model: CausalLM
    vocabulary: Tensor | None


def load_ssm(folder: Path, llm: CausalLM, engine: EngineConfig) -> SSM | RecurrentSSM:
    """Load an SSM for the LLM of an engine.

    Raises ModelFolderError for one of another LLM, and ConfigError for one that this cannot serve.
    """
    if not is_borrowing(folder):
        return SSM(load_llm(folder, engine.dtype, llm.device, engine.quantization), None)
    settings = read_settings(folder)
    learnt = read_weights(folder / WEIGHTS)
    vocabulary = learnt.pop("vocabulary").long()
    lent = Checkpoint(engine.model)
    name = next(name for name in lent.names() if name.endswith("embed_tokens.weight"))
    # The LLM's own where it is mapped already: pages count once for each mapping.
    embedding = llm.decoder.embedding if isinstance(llm, LeanLM) else lent[name]
    _check_llm(folder, llm, embedding, learnt.pop("llm_rows"), vocabulary)
    head = lent.rows(name if llm.config.tie_word_embeddings else HEAD, vocabulary)
    weights = restored(learnt)
    if settings["kind"] == "recurrent":
        both = embedding, head
        return load_recurrent(folder, settings, weights, vocabulary, both, llm, engine)
    config, lent_too = untied(read_architecture(folder)), {name: embedding, HEAD: head}
    model = _build(folder, config, Lent({**weights, **lent_too}), llm, engine)
    return SSM(model, vocabulary.to(llm.device))


class Lent(dict[str, Tensor]):
    """The learnt and the borrowed tensors by name, as if they were one checkpoint."""

    def find(self, name: str) -> Tensor | None:
        return self.get(name)


def _build(
    folder: Path, config: Config, weights: Lent, llm: CausalLM, engine: EngineConfig
) -> CausalLM:
    """Build the SSM for decoder.c where it runs, whatever the LLM is: int8 is how it is stored."""
    try:
        if llm.device.type == "cpu":
            library, reason = native_library(config)
            if library is not None:
                return _native(folder, config, weights, library)
            log.warning("%s: drafts without decoder.c, which is slower: %s", folder, reason)
        if isinstance(llm, LeanLM):
            return _lean(folder, config, weights, llm, engine)
        return _by_transformers(folder, weights, llm, engine)
    except (KeyError, RuntimeError) as error:
        raise ModelFolderError(f"{folder}: weights and config.json disagree: {error}") from error


def _native(folder: Path, config: Config, weights: Lent, library: Library) -> CausalLM:
    room = sum((len(w) + GROUP) * w.shape[1] for w in weights.values() if w.ndim == 2)
    make = functools.partial(Packed, block=Block(room))
    decoder = build_decoder(weights, config, torch.float32, make)
    return LeanLM(NativeDecoder(decoder, library), config, folder.name)


def _lean(
    folder: Path, config: Config, weights: Lent, llm: CausalLM, engine: EngineConfig
) -> CausalLM:
    make: MakeLinear = functools.partial(dense, dtype=llm.dtype)
    if engine.quantization == "int8":
        make = Int8
    return LeanLM(build_decoder(weights, config, llm.dtype, make), config, folder.name)


def _by_transformers(folder: Path, weights: Lent, llm: CausalLM, engine: EngineConfig) -> CausalLM:
    from transformers import AutoModelForCausalLM

    config: Any = untied(read_config(folder))
    embedding = llm.model.get_input_embeddings()  # type: ignore[operator]
    config.vocab_size, config.pad_token_id = len(weights[HEAD]), None
    auto: Any = AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation=tree_attention_name(), dtype=llm.dtype)
    model.set_input_embeddings(embedding)
    model.load_state_dict(weights)
    if engine.quantization not in ("none", "auto"):  # auto: no such class has decoder.c's speed
        quantize(model, engine.quantization, llm.device)
    return CausalLM(model.to(llm.device), folder.name)


def _check_llm(
    folder: Path, llm: CausalLM, embedding: Tensor, rows: Tensor, vocabulary: Tensor
) -> None:
    """Refuse an SSM made for another LLM, whose embedding would mean something else."""
    own = probe(embedding)
    if own.shape != rows.shape or not torch.allclose(own, rows, rtol=0.02, atol=1e-3):
        raise ModelFolderError(f"{folder}: made for another LLM than {llm.name}")
    ascending = bool((vocabulary.diff() > 0).all()) and len(vocabulary) > 0
    if not ascending or int(vocabulary[0]) < 0 or int(vocabulary[-1]) >= llm.vocab:
        raise ModelFolderError(f"{folder}: its vocabulary is not ascending ids of {llm.name}")
