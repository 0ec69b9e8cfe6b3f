"""A recurrent SSM's step as one call into step.c."""

import ctypes
from collections.abc import Mapping

import torch
from torch import Tensor

from specinfer.lean.native.described import CLinear, Long, Pointer, at, described, halves
from specinfer.lean.native.library import Library
from specinfer.lean.native.packed import GROUP
from specinfer.lean.native.run import LANES, lacking
from specinfer.lean.recurrent import Recurrent


class _Gated(ctypes.Structure):
    _fields_ = (("norm", Pointer), *((name, CLinear) for name in ("gate", "up", "down")))


class _Model(ctypes.Structure):
    _fields_ = (
        ("blocks", Pointer),
        *((name, Pointer) for name in ("state_norm", "token_norm", "norm")),
        *((name, CLinear) for name in ("inward", "head")),
        *((name, Long) for name in ("depth", "hidden", "inner")),
        ("eps", ctypes.c_double),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, Pointer) for name in ("parents", "tokens", "states", "logits")),
        *((name, Long) for name in ("rows", "threads")),
    )


def unfit_step(hidden: int, inner: int, capabilities: Mapping[str, object]) -> str | None:
    """Return why step.c cannot run an SSM of such widths here; None where it can."""
    if missing := lacking(capabilities, "int8"):
        return missing
    if hidden % LANES or inner % GROUP:
        return f"the width {hidden} is no multiple of {LANES}, or {inner} none of {GROUP}"
    return None


class NativeRecurrent:
    """A recurrent SSM whose linears are Packed; rows are float32."""

    def __init__(self, ssm: Recurrent, library: Library) -> None:
        self._ssm = ssm  # the structures point into its tensors
        self._blocks = (_Gated * len(ssm.blocks))()
        for own, block in zip(self._blocks, ssm.blocks, strict=True):
            own.norm = at(block.norm.weight)
            own.gate, own.up = halves(block.gate_up)
            own.down = described(block.down)
        self._model = _Model(
            blocks=ctypes.addressof(self._blocks),
            state_norm=at(ssm.state_norm.weight),
            token_norm=at(ssm.token_norm.weight),
            norm=at(ssm.norm.weight),
            inward=described(ssm.inward),
            head=described(ssm.head),
            depth=len(ssm.blocks),
            hidden=ssm.embedding.shape[1],
            inner=self._blocks[0].gate.out if ssm.blocks else GROUP,
            eps=ssm.norm.eps,
        )
        self._step = library.specinfer_step

    def __call__(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes' states [N, H] and their children's logits [N, D], both float32."""
        assert states.dtype == torch.float32 and states.shape == (len(tokens), self._model.hidden)
        entered = self._ssm.embedding[tokens].to(torch.float32)
        own, logits = torch.empty_like(states), torch.empty(len(tokens), self._model.head.out)
        step = _Step(
            parents=at(states),
            tokens=at(entered),
            states=at(own),
            logits=at(logits),
            rows=len(tokens),
            threads=torch.get_num_threads(),
        )
        if self._step(ctypes.byref(self._model), ctypes.byref(step)):
            raise MemoryError(f"no memory for a step of {len(tokens)} rows")
        return own, logits
