"""What of a model's pass makes the host wait, so that no CUDA graph can hold it."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specinfer.frame import Frame, pack
from specinfer.graphs import Buckets, Model, nothing
from specinfer.kv_cache import KVCache

HOST_WAITS = ("_local_scalar_dense", "item", "nonzero", "masked_select", "lift_fresh", "equal")


def what_waits(model: Model, cache: KVCache) -> set[str]:
    """Return the operations of a pass that make the host wait, which no graph can hold."""
    shape = next(Buckets.up_to(segments=1, pages=1, page_size=cache.page_size).usual(1))
    buffer = pack(nothing(cache), shape).to(cache.kv.device)
    watch = _Watch()
    with torch.inference_mode(), watch:
        model.run(Frame.over(buffer, shape), cache)
    return watch.waits


class _Watch(TorchDispatchMode):
    """Notes operations whose result the host has to see, or that bring host data along."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in HOST_WAITS:
            self.waits.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))
