"""Rotary position embedding from tables that grow in blocks, so a position has one value ever."""

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specinfer.lean.architecture import Config

BLOCK = 1024  # positions


class Rotary:
    """Cosines and signed sines by position, as transformers' own modules give them."""

    def __init__(self, config: Config, dtype: torch.dtype) -> None:
        self._frequencies, self._factor = frequencies(config)
        self._dtype = dtype
        self._cos, self._sin = self._block(0)

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines of positions [N], [N, 1, D] each."""
        while int(positions.max()) >= len(self._cos):
            cos, sin = self._block(len(self._cos))
            self._cos, self._sin = torch.cat([self._cos, cos]), torch.cat([self._sin, sin])
        return self._cos[positions], self._sin[positions]

    def _block(self, start: int) -> tuple[Tensor, Tensor]:
        angles = torch.arange(start, start + BLOCK).float()[:, None] * self._frequencies
        cos, sin = angles.cos() * self._factor, angles.sin() * self._factor
        tables = torch.cat([cos, cos], 1), torch.cat([-sin, sin], 1)  # rotate_half negates half
        return tables[0].to(self._dtype)[:, None], tables[1].to(self._dtype)[:, None]


def frequencies(config: Any) -> tuple[Tensor, float]:
    """Return the turn a position of each pair of columns, [D / 2], and what scales the tables."""
    kind = config.rope_parameters["rope_type"]
    if kind != "default":
        found: tuple[Tensor, float] = ROPE_INIT_FUNCTIONS[kind](config)
        return found
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, width, 2) / width), 1.0


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn vectors [N, H, D] to their positions."""
    return (x * cos).add_(x.roll(x.shape[-1] // 2, -1).mul_(sin))
