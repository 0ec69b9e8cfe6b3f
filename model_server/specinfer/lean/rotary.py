"""Rotary position embedding from tables that grow in blocks, so a position has one value ever."""

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

BLOCK = 1024  # positions


class Rotary:
    """Cosines and signed sines by position, as transformers' own module gives them."""

    def __init__(self, config: PretrainedConfig, dtype: torch.dtype) -> None:
        self._embed = LlamaRotaryEmbedding(config)  # type: ignore[arg-type]
        self._dtype = dtype
        self._cos, self._sin = self._block(0)

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines of positions [N], [N, 1, D] each."""
        while int(positions.max()) >= len(self._cos):
            cos, sin = self._block(len(self._cos))
            self._cos, self._sin = torch.cat([self._cos, cos]), torch.cat([self._sin, sin])
        return self._cos[positions], self._sin[positions]

    def _block(self, start: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(start, start + BLOCK)
        cos, sin = self._embed(torch.empty(0, dtype=self._dtype), positions[None])
        sin[..., : sin.shape[-1] // 2].neg_()  # the first half of rotate_half is negated
        return cos[0][:, None], sin[0][:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn vectors [N, H, D] to their positions."""
    return (x * cos).add_(x.roll(x.shape[-1] // 2, -1).mul_(sin))
