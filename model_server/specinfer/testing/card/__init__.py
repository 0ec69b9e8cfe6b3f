"""A pretend card: CUDA's rules for devices, waits and captures, kept without a GPU.

Tensors that say cuda:0 are a CPU's.  An operation that CUDA refuses is refused; what makes the host
wait for a device is counted; between a graph's beginning and its end every wait is an error, and a
replay does the recorded operations again on the same memory, as CUDA does.  It proves nothing of
speed, of races between streams, or of what a GPU's own arithmetic does.
"""

from specinfer.testing.card.card import Card
from specinfer.testing.card.errors import CaptureError, CardError
from specinfer.testing.card.tensor import CardTensor

__all__ = ["CaptureError", "Card", "CardError", "CardTensor"]
