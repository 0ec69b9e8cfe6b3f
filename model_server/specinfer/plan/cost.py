"""What one forward pass costs: bytes over bandwidth or operations over speed, and a fixed part.

The rows of a pass share one reading of the weights: that is what a token tree lives on (paper,
section 2).  Times are in seconds, sizes in bytes.
"""

from dataclasses import dataclass

from specinfer.plan.machine import ALL_REDUCE_S, Device
from specinfer.plan.shape import ModelShape

CACHE_BYTES = 2.0  # a number in the cache; float32 models keep 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model on one device, or split over several."""

    shape: ModelShape
    device: Device
    width: float  # bytes a weight
    tp: int = 1  # devices it is split over

    @property
    def cache_width(self) -> float:
        return max(CACHE_BYTES, self.width)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights on each device."""
        return self.shape.parameters * self.width / self.tp

    def cache_bytes(self, tokens: float) -> float:
        """Bytes of so many cached tokens on each device."""
        return tokens * self.shape.cache_bytes(self.cache_width) / self.tp

    def pass_s(self, rows: float, sequences: int = 1, context: float = 0) -> float:
        """Seconds of a pass over rows that belong to sequences of so many cached tokens each."""
        read = self.shape.read * self.width / self.tp + self.cache_bytes(sequences * context)
        shape = self.shape
        attention = 4 * shape.layers * shape.heads * shape.head_dim * context
        work = rows * (2 * shape.read + attention) / self.tp
        moved = max(read / self.device.bandwidth, work / self.device.flops)
        return moved + shape.layers * (self.device.layer_s + self._exchange_s(rows))

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
        return self.width / 2 * self.device.flops / self.device.bandwidth
