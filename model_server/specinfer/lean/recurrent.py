"""The recurrent SSM: a state that begins as the LLM's own and takes in one token at each step.

A node's state is made of its parent's and of its token's embedding, so such an SSM has no cache,
reads no prompt and never has to catch up (the idea of arXiv 2403.09919, 2402.05109, 2404.19124).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

import torch
from torch import Tensor
from torch.nn.functional import silu

from specinfer.lean.decoder import Norm
from specinfer.lean.linear import Linear, MakeLinear


@dataclass(frozen=True, slots=True)
class Gated:
    """A gated SiLU behind its norm, added to the stream."""

    norm: Norm
    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(self.norm(x)).chunk(2, 1)
        return x + self.down(silu(gate) * up)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """What makes a node's state of its parent's, and a node's children of its state."""

    embedding: Tensor  # [V, H], the LLM's
    state_norm: Norm
    token_norm: Norm
    inward: Linear  # [H, 2 H]
    blocks: Sequence[Gated]
    norm: Norm
    head: Linear  # [D, H], the LLM's rows of the draft vocabulary
    dtype: torch.dtype

    def __call__(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes' states [N, H] and their children's logits [N, D]."""
        own = self.step(states, tokens)
        return own, self.logits(own)

    def step(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Return the states of nodes, [N, H], from their parents' states and their tokens [N].

        The parent of a tree's root has the LLM's last hidden state, the row that its head
        multiplied when it chose the root's token.
        """
        x = states.to(self.dtype)
        entered = self.token_norm(self.embedding[tokens].to(self.dtype))
        x = x + self.inward(torch.cat([self.state_norm(x), entered], 1))
        for block in self.blocks:
            x = block(x)
        return x

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of nodes' children over the draft vocabulary, [N, D]."""
        return self.head(self.norm(states.to(self.dtype)))


def build_recurrent(
    weights: Mapping[str, Tensor],
    embedding: Tensor,
    head: Tensor,
    eps: float,
    dtype: torch.dtype,
    make: MakeLinear,
) -> Recurrent:
    """Build from what was learnt, by name, and what the LLM lends: [V, H], and [D, H] of its head.

    Raises KeyError for a tensor that is missing.
    """

    def norm(name: str) -> Norm:
        return Norm(weights[f"{name}.weight"].to(dtype), eps)

    def linear(*names: str) -> Linear:
        parts = [weights[f"{name}.weight"] for name in names]
        return make(torch.cat(parts) if parts[1:] else parts[0], None)

    own = takewhile(lambda name: f"{name}.norm.weight" in weights, map("blocks.{}".format, count()))
    return Recurrent(
        embedding=embedding,
        state_norm=norm("state_norm"),
        token_norm=norm("token_norm"),
        inward=linear("inward"),
        blocks=[
            Gated(
                norm(f"{name}.norm"),
                linear(f"{name}.gate_proj", f"{name}.up_proj"),
                linear(f"{name}.down_proj"),
            )
            for name in own
        ],
        norm=norm("norm"),
        head=make(head, None),
        dtype=dtype,
    )
