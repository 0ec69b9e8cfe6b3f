"""The linears of a decoder: dense, or int8 weights with one activation scale a row.

An int8 row is scaled by its own largest entry and summed in integers, so it comes out bit for
bit the same whatever else is in the batch; a scale for the whole batch would not do that.
"""

import warnings
from collections.abc import Callable, Collection
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from specinfer.errors import ConfigError

OPERATOR = "linear_with_input_q_dq_qweight_dq_output_fp32"
LEVELS = 127  # int8, symmetric
CHUNK = 256  # rows of a weight, whole groups of decoder.c
SMALLEST = 1e-20  # of a row's largest entry: a row of zeros stays one


class Linear(Protocol):
    """x [N, in] -> [N, out]."""

    def __call__(self, x: Tensor, /) -> Tensor: ...


MakeLinear = Callable[[Tensor, Tensor | None], Linear]


class Dense:
    """A linear in the type of its weight [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor, /) -> Tensor:
        return linear(x, self._weight, self._bias)


def dense(weight: Tensor, bias: Tensor | None, *, dtype: torch.dtype) -> Dense:
    """Return a linear that computes in dtype, in memory of its own: its file may go away."""
    return Dense(weight.to(dtype, copy=True), None if bias is None else bias.to(dtype))


class Int8:
    """A linear of packed int8 weights, one scale an output channel; float32 in and out."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Quantize a weight [out, in]; raises ConfigError where torch cannot run it."""
        self._levels, self._zero = activation_range()
        self._run = getattr(torch.ops.quantized, OPERATOR).default
        self._packed = _pack(weight, self._levels)
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor, /) -> Tensor:
        rows, scales = quantize_rows(x, self._levels)
        y: Tensor = self._run(rows, 1.0, self._zero, self._packed).mul_(scales)
        return y if self._bias is None else y.add_(self._bias)


def quantize_rows(x: Tensor, levels: int = LEVELS) -> tuple[Tensor, Tensor]:
    """Return x [N, in] in levels, not rounded yet, and each row's largest entry, [N, 1]."""
    largest = x.abs().amax(1, keepdim=True).clamp_(min=SMALLEST)
    return x * (levels / largest), largest


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight's levels, [out, in] int8, and the scale of each output, [out] float32.

    Some rows at a time: a head of 49152 rows would else need its size three times over.
    """
    levels = torch.empty(weight.shape, dtype=torch.int8)
    scales = torch.empty(len(weight))
    for rows in range(0, len(weight), CHUNK):
        part = weight[rows : rows + CHUNK].float()
        own = part.abs().amax(1).clamp_(min=SMALLEST) / LEVELS
        levels[rows : rows + CHUNK] = (part / own[:, None]).round_()
        scales[rows : rows + CHUNK] = own
    return levels, scales


class Int8Module(torch.nn.Module):
    """An Int8 in the place of a torch.nn.Linear, for any number of leading dimensions."""

    def __init__(self, replaced: torch.nn.Linear) -> None:
        super().__init__()
        self._linear = Int8(replaced.weight.detach(), replaced.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = self._linear(x.flatten(0, -2).float())
        return y.to(x.dtype).view(*x.shape[:-1], y.shape[-1])


def activation_range(
    engines: Collection[str] = tuple(torch.backends.quantized.supported_engines),
) -> tuple[int, int]:
    """Return an activation's levels and the zero point that makes them unsigned.

    Without VNNI the processor adds pairs of products in 16 bits, which 7-bit activations keep
    from overflowing.  Raises ConfigError where torch has no such operator.
    """
    if "fbgemm" not in engines or not hasattr(torch.ops.quantized, OPERATOR):
        raise ConfigError(f"quantization: int8 needs a build of torch with fbgemm and {OPERATOR}")
    capable = torch.cpu.get_capabilities()
    return (127, 128) if capable.get("avx512_vnni") else (63, 64)


def _pack(weight: Tensor, levels: int) -> Tensor:
    """Quantize each output channel; activations' 1 / levels goes into its scale."""
    rounded, scales = quantize_weight(weight)
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        with warnings.catch_warnings():
            # torch 2.13 announces the end of qint8 tensors, which its packed operator still takes.
            warnings.simplefilter("ignore", UserWarning)
            quantized = torch._make_per_channel_quantized_tensor(
                rounded,
                (scales / levels).double(),
                torch.zeros(len(weight), dtype=torch.int64),
                0,
            )
            packed: Tensor = torch.ops.quantized.linear_prepack(quantized, None)
    finally:
        torch.backends.quantized.engine = engine
    return packed
