"""How far a batch is: a bar on a terminal, a line a shard elsewhere."""

import time
from collections.abc import Callable
from typing import TextIO

WIDTH = 30


class Bar:
    """Rows done of all; those of an earlier run count as done but not for the speed."""

    def __init__(
        self,
        out: TextIO,
        total: int,
        before: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out, self._total, self._before, self._clock = out, total, before, clock
        self._done = before
        self._started = clock()
        self._tell()

    def add(self, rows: int) -> None:
        self._done += rows
        self._tell()

    def close(self) -> None:
        if self._out.isatty():
            print(file=self._out)

    def _tell(self) -> None:
        seconds = self._clock() - self._started
        rate = (self._done - self._before) / seconds if seconds > 0 else 0.0
        left = f", {(self._total - self._done) / rate:.0f} s left" if rate else ""
        text = f"{self._done}/{self._total} rows, {rate:.1f} rows/s{left}"
        if self._out.isatty():
            full = WIDTH * self._done // self._total
            bar = "#" * full + "-" * (WIDTH - full)
            print(f"\r[{bar}] {text}\x1b[K", end="", file=self._out, flush=True)
        else:
            print(text, file=self._out, flush=True)
