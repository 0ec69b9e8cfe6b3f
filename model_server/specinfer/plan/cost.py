"""What one forward pass costs: bytes over bandwidth or operations over speed, and a fixed part.

The rows of a pass share one reading of the weights: that is what a token tree lives on (paper,
section 2).  Times are in seconds, sizes in bytes.
"""

from dataclasses import dataclass
from typing import Literal

from specinfer.plan.machine import ALL_REDUCE_S, Device
from specinfer.plan.shape import ModelShape

CACHE_BYTES = 2.0  # a number in the cache; float32 models keep 4
# Bytes of a weight in a linear, scales included.
QUANTIZED = {"int8": 1.0, "int4_weight_only": 0.5 + 4 / 32}
Quantization = Literal["none", "int8", "int4_weight_only"]


@dataclass(frozen=True, slots=True)
class Offloading:
    """Layers that come to the device in every pass, a few of them ahead of their use."""

    where: Literal["disk", "cpu"]
    bandwidth: float  # bytes a second from there
    layers: int  # on the device at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model on one device, or split over several."""

    shape: ModelShape
    device: Device
    width: float  # bytes a weight that is not quantized
    tp: int = 1  # devices it is split over
    quantization: Quantization = "none"
    offloading: Offloading | None = None

    @property
    def cache_width(self) -> float:
        return max(CACHE_BYTES, self.width)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights on each device.

        int8 has a head of its own beside the embedding; int4 leaves both as they are.
        """
        shape = self.shape
        if self.offloading is not None:
            away = max(0, 1 - self.offloading.layers / shape.layers) * self._stack_bytes
            return shape.parameters * self.width - away
        if self.quantization == "none":
            return shape.parameters * self.width / self.tp
        own = shape.table if self.quantization == "int8" else shape.parameters - shape.read
        return (self.read_bytes + own * self.width) / self.tp

    @property
    def read_bytes(self) -> float:
        """Bytes of all weights that a pass multiplies by."""
        if self.quantization == "none":
            return self.shape.read * self.width
        head = 0 if self.quantization == "int8" else self.shape.table
        return (self.shape.read - head) * QUANTIZED[self.quantization] + head * self.width

    @property
    def _stack_bytes(self) -> float:
        """Bytes of the layers, as they are stored."""
        return (self.shape.read - self.shape.table) * self.width

    def cache_bytes(self, tokens: float) -> float:
        """Bytes of so many cached tokens on each device."""
        return tokens * self.shape.cache_bytes(self.cache_width) / self.tp

    def pass_s(self, rows: float, sequences: int = 1, context: float = 0) -> float:
        """Seconds of a pass over rows that belong to sequences of so many cached tokens each."""
        read = self.read_bytes / self.tp + self.cache_bytes(sequences * context)
        shape = self.shape
        attention = 4 * shape.layers * shape.heads * shape.head_dim * context
        work = rows * (2 * shape.read + attention) / self.tp
        moved = max(read / self.device.bandwidth, work / self.device.flops)
        own = moved + shape.layers * (self.device.layer_s + self._exchange_s(rows))
        return max(own, self.fetched_s)

    @property
    def fetched_s(self) -> float:
        """Seconds in which the layers of a pass come to the device."""
        return self._stack_bytes / self.offloading.bandwidth if self.offloading else 0.0

    @property
    def ahead_s(self) -> float:
        """Seconds of that which may pass before the pass begins."""
        held = self.offloading.layers / self.shape.layers if self.offloading else 0.0
        return self.fetched_s * min(1.0, held)

    def _exchange_s(self, rows: float) -> float:
        """Two all-reduces a layer, of every row's hidden state."""
        if self.tp == 1:
            return 0.0
        assert self.device.link is not None
        sent = 2 * (self.tp - 1) / self.tp * rows * self.shape.hidden * CACHE_BYTES
        return 2 * (ALL_REDUCE_S + sent / self.device.link)

    @property
    def free_rows(self) -> float:
        """Rows at which arithmetic takes as long as reading the weights."""
        moved = max(self.read_bytes / self.device.bandwidth, self.fetched_s)
        return moved * self.device.flops / (2 * self.shape.read)
