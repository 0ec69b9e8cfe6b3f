"""Units of weights on their way to the device, a few ahead of their use.

Passes use the units in order, round and round, so a thread reads on across the end of a pass:
while SSMs draft, the LLM's first layers already come in.
"""

import queue
import threading
from collections.abc import Sequence
from itertools import cycle
from typing import Protocol

import torch
from torch import Tensor

from specinfer.offload.files import Reader, aligned
from specinfer.offload.units import Unit


class Source(Protocol):
    """Where units are kept."""

    def bring(self, number: int, staging: Tensor) -> Tensor:
        """Return a unit's bytes on the host, in `staging` unless they are elsewhere already."""

    def close(self) -> None:
        """Let go of what is more than memory."""


class Disk:
    """Units read from the model folder's own files each time."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units
        self._reader = Reader()

    def bring(self, number: int, staging: Tensor) -> Tensor:
        for read in self._units[number].reads:
            self._reader.read(read.file, read.start, staging[read.into : read.into + read.count])
        return staging

    def close(self) -> None:
        self._reader.close()


class Memory:
    """Units kept in host memory, pinned where a GPU is to fetch them."""

    def __init__(self, units: Sequence[Unit], *, pinned: bool) -> None:
        disk = Disk(units)
        self._kept = [
            disk.bring(number, aligned(unit.size, pinned=pinned))
            for number, unit in enumerate(units)
        ]
        disk.close()

    def bring(self, number: int, staging: Tensor) -> Tensor:
        return self._kept[number]

    def close(self) -> None:
        pass


class Slot:
    """Room for one unit on host and device."""

    def __init__(self, size: int, device: torch.device, *, stages: bool) -> None:
        gpu = device.type == "cuda"
        self.staging = aligned(size if stages else 0, pinned=gpu)
        self.bytes = torch.empty(size, dtype=torch.uint8, device=device) if gpu else self.staging
        self.loaded = _event() if gpu else None
        self.used = _event() if gpu else None


class Stream:
    """Brings a model's units to a device.  `take` and `give_back` belong to one thread."""

    def __init__(
        self, units: Sequence[Unit], source: Source, device: torch.device, *, slots: int
    ) -> None:
        self._source = source
        self._count = len(units)
        self._copies = _side_stream(device) if device.type == "cuda" else None
        self._free: queue.SimpleQueue[Slot | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[int, Slot] | OSError] = queue.SimpleQueue()
        size = max(unit.size for unit in units)
        for _ in range(slots):
            self._free.put(Slot(size, device, stages=isinstance(source, Disk)))
        self._held: Slot | None = None
        self._thread = threading.Thread(target=self._run, name="specinfer-weights", daemon=True)
        self._thread.start()

    def take(self, number: int) -> Tensor:
        """Wait for a unit, the one after that taken last; raises OSError."""
        came = self._ready.get()
        if isinstance(came, OSError):
            self._ready.put(came)  # every later pass fails too
            raise came
        found, slot = came
        assert found == number, "units are taken in order"
        self._held = slot
        if slot.loaded is not None:
            slot.loaded.wait()
        return slot.bytes

    def give_back(self) -> None:
        """Let the unit's room be used again once what was launched with it has run."""
        assert self._held is not None
        if self._held.used is not None:
            self._held.used.record()
        self._free.put(self._held)
        self._held = None

    def close(self) -> None:
        """End the thread."""
        self._free.put(None)
        self._thread.join()
        self._source.close()

    def _run(self) -> None:
        for number in cycle(range(self._count)):
            slot = self._free.get()
            if slot is None:
                return
            try:
                self._bring(number, slot)
            except OSError as error:
                self._ready.put(error)
                return
            self._ready.put((number, slot))

    def _bring(self, number: int, slot: Slot) -> None:
        if slot.loaded is not None:
            slot.loaded.synchronize()  # the last copy out of the staging room
        host = self._source.bring(number, slot.staging)
        if self._copies is None or slot.used is None or slot.loaded is None:
            slot.bytes = host
            return
        with torch.cuda.stream(self._copies):
            self._copies.wait_event(slot.used)
            slot.bytes[: len(host)].copy_(host, non_blocking=True)
            slot.loaded.record()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
