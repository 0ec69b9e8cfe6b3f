"""Which implementation serves a call: the argument's, the environment's, or the device's own."""

import os
from collections.abc import Mapping
from importlib.util import find_spec

import torch

from specinfer_kernels.errors import KernelError

VARIABLE = "SPECINFER_KERNELS"
BACKENDS = ("triton", "cpu", "reference")


def choose_backend(
    device: torch.device, argument: str | None = None, environ: Mapping[str, str] = os.environ
) -> str:
    """Return one of BACKENDS; an unknown or impossible wish raises KernelError."""
    wish = argument or environ.get(VARIABLE) or _native_to(device)
    if wish not in BACKENDS:
        raise KernelError(f"unknown kernel backend {wish!r}; choose from {', '.join(BACKENDS)}")
    if wish == "cpu" and device.type != "cpu":
        raise KernelError(f"backend 'cpu' cannot reach tensors on {device}")
    if wish == "triton":
        _require_triton(device, environ)
    return wish


def by_head(device: torch.device) -> bool:
    """Return whether pools [S, K, D] are read fastest as views of [K, S, D], head by head."""
    return choose_backend(device) == "cpu"


def samples_together(device: torch.device) -> bool:
    """Return whether a batch is best sampled at once, by kernels, and not as its rows are met."""
    return choose_backend(device) != "cpu"


def _native_to(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else "triton"


def _require_triton(device: torch.device, environ: Mapping[str, str]) -> None:
    if find_spec("triton") is None:
        raise KernelError("backend 'triton' needs the package triton, which is not installed")
    if device.type != "cuda" and environ.get("TRITON_INTERPRET") != "1":
        raise KernelError(f"backend 'triton' runs on cuda, or interpreted; tensors are on {device}")
