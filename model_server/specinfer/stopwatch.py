"""How long a device worked, without waiting for it."""

import time

import torch


class Stopwatch:
    """Runs from its making to `stop`; read once the host has seen a later result anyway."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks = [self._mark()]

    def stop(self) -> None:
        self._marks.append(self._mark())

    def milliseconds(self) -> float:
        """Return the time between the marks; waits for a device that is not so far yet."""
        start, end = self._marks
        if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
            end.synchronize()
            return float(start.elapsed_time(end))
        assert isinstance(start, float) and isinstance(end, float)
        return (end - start) * 1e3

    def _mark(self) -> float | torch.cuda.Event:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event
