"""Progress of something slow: one rewritten line on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

_MIB = 1 << 20
# A log file gets at most one line of counting in this many seconds, a terminal ten a second.
_LOG_EVERY = 10.0
_TERMINAL_EVERY = 0.1


class Progress:
    """Steps, and how far the present one has come. Everything goes to `out`, prefixed once."""

    def __init__(
        self, out: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = sys.stderr if out is None else out
        self._live = self._out.isatty()
        self._clock = clock
        self._due = 0.0
        self._open = False

    def say(self, text: str) -> None:
        """A whole line that stays."""
        self._close()
        print(f"specinfer: {text}", file=self._out, flush=True)
        self._due = self._clock() + (_TERMINAL_EVERY if self._live else _LOG_EVERY)

    def megabytes(self, doing: str, done: int, total: int) -> None:
        """`done` and `total` are bytes."""
        self._count(doing, f"{min(done, total) / _MIB:.0f} of {total / _MIB:.0f} MiB")

    def items(self, doing: str, done: int, total: int) -> None:
        self._count(doing, f"{done} of {total}")

    def seconds(self, doing: str, elapsed: float) -> None:
        self._count(doing, f"{elapsed:.0f} s")

    def _count(self, doing: str, amount: str) -> None:
        if self._clock() < self._due:
            return
        text = f"specinfer:   {doing}: {amount}"
        if self._live:
            # \x1b[K erases the rest of a longer earlier line.
            print(f"\r{text}\x1b[K", end="", file=self._out, flush=True)
            self._open = True
            self._due = self._clock() + _TERMINAL_EVERY
        else:
            print(text, file=self._out, flush=True)
            self._due = self._clock() + _LOG_EVERY

    def _close(self) -> None:
        if self._open:
            print("\r\x1b[K", end="", file=self._out, flush=True)
            self._open = False
