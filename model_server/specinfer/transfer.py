"""Host memory to a device, without making the host wait for it."""

from collections.abc import Sequence

import torch
from torch import Tensor


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
