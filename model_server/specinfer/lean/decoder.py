"""The blocks of a Llama-like model, run on ForwardPlans with as few operators as it takes.

A pass of SmolLM2-135M over one row spends 9 ms in its int8 linears; transformers' modules around
them would spend 20 ms more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from specinfer.attend import Pass
from specinfer.frame import Frame
from specinfer.kv_cache import KVCache
from specinfer.lean.linear import Linear
from specinfer.lean.rotary import Rotary, rotate
from specinfer_kernels import plan_attention, tree_attention


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm over the last dimension."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.rms_norm(x, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class Attention:
    """Self-attention of one layer; query, key and value are one linear."""

    layer: int
    heads: int
    kv_heads: int
    width: int
    window: int | None
    qkv: Linear
    out: Linear
    q_norm: Norm | None
    k_norm: Norm | None

    def __call__(self, x: Tensor, turn: tuple[Tensor, Tensor], step: Pass) -> Tensor:
        rows, heads, width = len(x), self.heads, self.width
        qkv = self.qkv(x).view(rows, heads + 2 * self.kv_heads, width)
        turned = rotate(self._normed(qkv[:, : heads + self.kv_heads]), *turn)
        keys, values = step.cache.layer(self.layer)
        keys.index_copy_(0, step.slots, turned[:, heads:])
        values.index_copy_(0, step.slots, qkv[:, heads + self.kv_heads :])
        seen = tree_attention(
            turned[:, :heads],
            keys,
            values,
            step.attention,
            scale=width**-0.5,
            window=self.window,
        )
        return self.out(seen.reshape(rows, heads * width))

    def _normed(self, qk: Tensor) -> Tensor:
        if self.q_norm is None or self.k_norm is None:
            return qk
        return torch.cat([self.q_norm(qk[:, : self.heads]), self.k_norm(qk[:, self.heads :])], 1)


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: attention and a gated SiLU, each behind its norm and added to the stream."""

    before: Norm
    attention: Attention
    between: Norm
    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor, turn: tuple[Tensor, Tensor], step: Pass) -> Tensor:
        x = self.attention(self.before(x), turn, step).add_(x)
        gate, up = self.gate_up(self.between(x)).chunk(2, 1)
        return self.down(silu(gate).mul_(up)).add_(x)


@dataclass(frozen=True, slots=True)
class Decoder:
    """Embedding, blocks, last norm and head."""

    embedding: Tensor  # [V, hidden], maybe a view of the mapped file
    rotary: Rotary
    blocks: Sequence[Block]
    norm: Norm
    head: Linear
    dtype: torch.dtype

    def __call__(self, frame: Frame, cache: KVCache) -> tuple[Tensor, Tensor]:
        """Return the logits of the frame's wanted rows, [R, V], and what they were made of.

        The latter are the rows after the last norm, [R, hidden].
        """
        step = Pass(frame.slots, plan_attention(frame.batch, dtype=cache.kv.dtype), cache)
        x = self.embedding[frame.tokens].to(self.dtype)
        turn = self.rotary(frame.positions)
        for block in self.blocks:
            x = block(x, turn, step)
        states = self.norm(x[frame.wanted])
        return self.head(states), states
