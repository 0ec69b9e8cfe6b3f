"""Linears of fewer bits in transformers' own classes, on CPUs and GPUs, by torch's operators.

| setting          | weights [out, in]                        | rows     | sums      |
|------------------|------------------------------------------|----------|-----------|
| int8             | int8, a scale an output                  | int8     | integers  |
| int8_weight_only | int8, a scale an output                  | as given | as given  |
| int4_weight_only | 4 bits, scale and middle for 32 inputs   | bfloat16 | bfloat16  |

torchao wraps the same operators; docs/decisions.md tells why it is not used.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from specinfer.config import DType, Quantization
from specinfer.errors import ConfigError
from specinfer.lean.linear import LEVELS, Int8Module, quantize_rows, quantize_weight
from specinfer.llm import CausalLM

log = logging.getLogger(__name__)

GROUP = 32  # inputs of an int4 weight that share scale and middle
TILES = 2  # of 16 inputs, which a GPU's int4 operator packs together: 32, so that any group fits
FEWEST = 32  # rows of torch._int_mm on a GPU, which refuses up to 16
Make = Callable[[nn.Linear, torch.device], nn.Module]


def load_quantized(
    folder: Path, dtype: DType, device: torch.device, kind: Quantization
) -> CausalLM:
    """Load a folder into transformers' class and quantize it.

    Raises ModelFolderError, or ConfigError for a dtype or sizes that no operator takes.
    """
    if kind == "int4_weight_only":
        if dtype not in ("auto", "bfloat16"):
            raise ConfigError(f"dtype: {kind} computes in bfloat16, not in {dtype}")
        dtype = "bfloat16"
    if kind == "int8" and device.type == "cpu":
        dtype = "float32"
    llm = CausalLM.load(folder, dtype, torch.device("cpu"))
    quantize(llm.model, kind, device)
    return llm


def quantize(model: nn.Module, kind: Quantization, device: torch.device) -> None:
    """Replace a model's linears one after the other, and bring it to a device.

    The head stays as it is in int4: quality hangs on it, and it is often the embedding.
    """
    make, outputs, inputs = _maker(kind, device)
    head = model.get_output_embeddings() if kind == "int4_weight_only" else None  # type: ignore[operator]
    replaced = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not nn.Linear or child is head:
                continue
            if child.out_features % outputs == 0 and child.in_features % inputs == 0:
                setattr(parent, name, make(child, device))
                replaced += 1
    if not replaced:
        raise ConfigError(
            f"quantization: {kind} needs outputs that {outputs} divides and inputs that {inputs}"
            " divides, which no linear of this model has"
        )
    log.info("%s: %d linears quantized", kind, replaced)
    model.to(device)


def _maker(kind: Quantization, device: torch.device) -> tuple[Make, int, int]:
    """Return the replacement, and what it wants outputs and inputs to be multiples of."""
    if kind == "int8_weight_only":
        return Int8Weight, 1, 1
    if kind == "int4_weight_only":
        return Int4Weight, 16, GROUP
    if device.type == "cpu":
        return lambda linear, _: Int8Module(linear), 1, 1
    return Int8Rows, 8, 8


class _Quantized(nn.Module):
    """A linear for rows with any number of leading dimensions."""

    bias: Tensor | None

    def __init__(self, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        y = self.times(x.flatten(0, -2))
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype).view(*x.shape[:-1], y.shape[-1])

    def times(self, rows: Tensor) -> Tensor:
        """Return rows [N, in] times the weight, [N, out]."""
        raise NotImplementedError


class Int8Weight(_Quantized):
    """int8 weights, spread out to the rows' type when used: a quarter or half of the memory."""

    levels: Tensor
    scales: Tensor

    def __init__(self, replaced: nn.Linear, device: torch.device) -> None:
        super().__init__(replaced.bias)
        levels, scales = quantize_weight(replaced.weight.detach())
        self.register_buffer("levels", levels.to(device))
        self.register_buffer("scales", scales.to(device))

    def times(self, rows: Tensor) -> Tensor:
        return (rows @ self.levels.to(rows.dtype).t()) * self.scales.to(rows.dtype)


class Int8Rows(Int8Weight):
    """int8 weights times int8 rows.  Sums are exact, so a row's bits depend on no other row."""

    def times(self, rows: Tensor) -> Tensor:
        rounded, largest = quantize_rows(rows.float())
        short = max(0, FEWEST - len(rows))
        padded = nn.functional.pad(rounded.round().to(torch.int8), (0, 0, 0, short))
        sums = torch._int_mm(padded, self.levels.t())[: len(rows)]
        return sums * (largest / LEVELS) * self.scales


class Int4Weight(_Quantized):
    """int4 weights, which torch's operators multiply with bfloat16 rows without spreading them."""

    packed: Tensor
    scales: Tensor

    def __init__(self, replaced: nn.Linear, device: torch.device) -> None:
        super().__init__(replaced.bias)
        levels, scales = int4_levels(replaced.weight.detach())
        self.register_buffer("packed", _packed(levels.to(device)))
        self.register_buffer("scales", scales.to(device))

    def times(self, rows: Tensor) -> Tensor:
        cpu = rows.device.type == "cpu"
        ops = torch.ops.aten
        run = ops._weight_int4pack_mm_for_cpu if cpu else ops._weight_int4pack_mm
        y: Tensor = run(rows, self.packed, GROUP, self.scales)
        return y


def int4_levels(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return levels [out, in] int32, and scale and middle of each group, [in / 32, out, 2].

    A level q of 0 to 15 stands for (q - 8) * scale + middle; a group's least and largest entries
    are its ends.
    """
    groups = weight.float().view(len(weight), -1, GROUP)
    least, most = groups.aminmax(dim=2)
    scale = ((most - least) / 15).clamp_(min=1e-9)
    levels = ((groups - least[..., None]) / scale[..., None]).round_().clamp_(0, 15)
    both = torch.stack([scale, least + 8 * scale], dim=-1)
    return levels.flatten(1).to(torch.int32), both.transpose(0, 1).contiguous().bfloat16()


def _packed(levels: Tensor) -> Tensor:
    """Return levels as the device's operator wants them."""
    ops = torch.ops.aten
    if levels.device.type == "cpu":
        packed: Tensor = ops._convert_weight_to_int4pack_for_cpu(levels, TILES)
        return packed
    pairs = (levels[:, ::2] << 4 | levels[:, 1::2]).to(torch.uint8)
    packed = ops._convert_weight_to_int4pack(pairs, TILES)
    return packed
