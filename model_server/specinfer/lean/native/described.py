"""Linears as the C code sees them: where their weights lie, and how many outputs they have."""

import ctypes

from torch import Tensor

from specinfer.lean.linear import Linear
from specinfer.lean.native.packed import GROUP, Grouped

Pointer, Long = ctypes.c_void_p, ctypes.c_int64


class CLinear(ctypes.Structure):
    """linear.h's structure; the tensors must outlive it."""

    _fields_ = (
        *((name, Pointer) for name in ("weight", "scale", "bias")),
        ("out", Long),
        ("inputs", Long),
    )


def at(tensor: Tensor) -> int:
    """Return where a tensor's memory begins."""
    assert tensor.is_contiguous()
    return tensor.data_ptr()


def described(linear: Linear, first: int = 0, end: int | None = None) -> CLinear:
    """Return the outputs from first to end, which are multiples of GROUP or the last."""
    assert isinstance(linear, Grouped)
    return CLinear(
        weight=at(linear.weight[first // GROUP :]),
        scale=None if linear.scale is None else at(linear.scale[first:]),
        bias=None if linear.bias is None else at(linear.bias[first:]),
        out=(linear.out if end is None else end) - first,
        inputs=linear.inputs,
    )


def halves(linear: Linear) -> tuple[CLinear, CLinear]:
    """Return the two linears whose outputs lie side by side in one."""
    assert isinstance(linear, Grouped)
    half = linear.out // 2
    return described(linear, 0, half), described(linear, half)
