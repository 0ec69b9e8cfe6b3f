"""Loading a recurrent SSM: step.c where it runs, else torch's operators."""

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specinfer.config import EngineConfig
from specinfer.errors import ConfigError, ModelFolderError
from specinfer.lean.linear import Int8, MakeLinear, dense
from specinfer.lean.llm import step_library
from specinfer.lean.native import GROUP, Block, NativeRecurrent, Packed
from specinfer.lean.recurrent import Recurrent, build_recurrent
from specinfer.llm import CausalLM
from specinfer.transfer import send

log = logging.getLogger(__name__)

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RecurrentSSM:
    """A drafting model without cache or context; its logits are over vocabulary [D]."""

    name: str
    hidden: int  # H
    model: Recurrent | NativeRecurrent
    vocabulary: Tensor
    device: torch.device

    @torch.inference_mode()
    def step(self, states: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
        """Return nodes' states [N, H] from their parents', and their children's logits [N, D].

        A tree's root has a parent as well: the row that the LLM's head multiplied when it chose
        the root's token.
        """
        own, logits = self.model(states, send(tokens, self.device))
        return own, logits.float()


def load_recurrent(
    folder: Path,
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    vocabulary: Tensor,
    lent: tuple[Tensor, Tensor],
    llm: CausalLM,
    engine: EngineConfig,
) -> RecurrentSSM:
    """Build from what was read and the LLM lends: embedding [V, H], and [D, H] of its head.

    Raises ModelFolderError, or ConfigError for an LLM whose states cannot be had.
    """
    embedding, head = lent
    hidden = embedding.shape[1]
    eps = settings.get("rms_norm_eps")
    if not isinstance(eps, float) or not 0 < eps < 1:
        raise ModelFolderError(f"{folder}: its rms_norm_eps is {eps!r}, not between 0 and 1")
    inner = _check_shapes(folder, weights, hidden)
    if llm.state_width != hidden:
        raise ConfigError(
            f"{folder}: this SSM begins at the LLM's last hidden state of {hidden} numbers; "
            f"{llm.name} hands out {llm.state_width or 'none'}"
        )
    build = functools.partial(build_recurrent, weights, eps=eps)
    if llm.device.type == "cpu":
        library, reason = step_library(hidden, inner)
        if library is not None:
            room = sum((len(w) + GROUP) * (w.shape[1] + 4) for w in _matrices(weights, head))
            make: MakeLinear = functools.partial(Packed, block=Block(room))
            model = build(embedding, head, dtype=torch.float32, make=make)
            native = NativeRecurrent(model, library)
            return RecurrentSSM(folder.name, hidden, native, vocabulary, llm.device)
        log.warning("%s: drafts without step.c, which is slower: %s", folder, reason)
    make = functools.partial(dense, dtype=llm.dtype)
    if engine.quantization == "int8" and llm.device.type == "cpu":
        make = Int8
    there = {name: weight.to(llm.device) for name, weight in weights.items()}
    model = build_recurrent(
        there, _embedding(llm, embedding), head.to(llm.device), eps, llm.dtype, make
    )
    return RecurrentSSM(folder.name, hidden, model, vocabulary.to(llm.device), llm.device)


def _matrices(weights: Mapping[str, Tensor], head: Tensor) -> list[Tensor]:
    return [head, *(weight for weight in weights.values() if weight.ndim == 2)]


def _check_shapes(folder: Path, weights: Mapping[str, Tensor], hidden: int) -> int:
    """Return the gates' width; raises ModelFolderError for tensors that are no recurrent SSM's."""
    gate = weights.get("blocks.0.gate_proj.weight")
    inner = len(gate) if gate is not None else 0
    blocks = sum(name.endswith(".norm.weight") for name in weights)
    wanted: Shapes = dict.fromkeys(("state_norm", "token_norm", "norm"), (hidden,))
    wanted["inward"] = (hidden, 2 * hidden)
    for block in map("blocks.{}".format, range(max(1, blocks))):
        wanted[f"{block}.norm"] = (hidden,)
        wanted[f"{block}.gate_proj"] = wanted[f"{block}.up_proj"] = (inner, hidden)
        wanted[f"{block}.down_proj"] = (hidden, inner)
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    for name in sorted(found.keys() | {f"{name}.weight" for name in wanted}):
        want = wanted.get(name.removesuffix(".weight"))
        if found.get(name) != want:
            raise ModelFolderError(
                f"{folder}: {name} is {found.get(name, 'missing')}, not {want or 'known'}"
            )
    return inner


def _embedding(llm: CausalLM, lent: Tensor) -> Tensor:
    """Return the LLM's embedding on its device: its own where that is whole, else a copy."""
    if llm.device.type == "cpu":
        return lent
    own: Tensor = llm.model.get_input_embeddings().weight  # type: ignore[operator]
    whole = type(own.data) is Tensor and own.shape == lent.shape and own.device == llm.device
    return own.detach() if whole else lent.to(llm.device, llm.dtype)
