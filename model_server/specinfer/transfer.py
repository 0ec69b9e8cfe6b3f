"""Host memory to a device and back, the host waiting for a device as seldom as can be."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 64  # bytes; Triton compiles for pointers that 16 divides


def staging(count: int, device: torch.device) -> Tensor:
    """Return bytes on the host, uninitialised, that a device can fetch while the host goes on.

    PyTorch's allocator gives pinned bytes out again only after the copies from them are done.
    """
    return torch.empty(count, dtype=torch.uint8, pin_memory=device.type == "cuda")


def send(values: Sequence[int], device: torch.device) -> Tensor:
    """Return [len(values)] int64 on the device."""
    pinned = device.type == "cuda"
    host = torch.tensor(values, dtype=torch.int64, pin_memory=pinned)
    return host.to(device, non_blocking=True)


def send_arrays(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor]:
    """Return arrays on the device, of the same types and shapes, all brought by one copy.

    A CPU has them already: they share their memory.
    """
    if device.type == "cpu":
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    ends = list(accumulate(aligned(array.nbytes) for array in arrays.values()))
    host = staging(ends[-1], device)
    starts, whole = [0, *ends], host.numpy()
    for start, array in zip(starts, arrays.values(), strict=False):
        whole[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    there = host.to(device, non_blocking=True)
    return {
        name: there[start : start + array.nbytes]
        .view(torch.from_numpy(array).dtype)
        .reshape(array.shape)
        for start, (name, array) in zip(starts, arrays.items(), strict=False)
    }


def bring(parts: Sequence[Tensor]) -> list[Any]:
    """Return tensors of one type as nested lists; the device is waited for once."""
    if not parts:
        return []
    flat = torch.cat([part.reshape(-1) for part in parts]).cpu().numpy()
    ends = list(accumulate(part.numel() for part in parts))
    shapes = [part.shape for part in parts]
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(shape).tolist() for piece, shape in zip(pieces, shapes, strict=True)]


def aligned(count: int) -> int:
    """Return the multiple of ALIGNMENT from count on."""
    return -(-count // ALIGNMENT) * ALIGNMENT
