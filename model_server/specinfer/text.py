"""Token ids to text, piece by piece: no broken character, nothing at or after a stop string."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BROKEN = "\ufffd"  # what decoding gives for a character whose bytes are not all there yet


class Piece(NamedTuple):
    """Text and token ids that may be shown now."""

    text: str
    tokens: tuple[int, ...]


@dataclass(slots=True)
class TextStream:
    """Turns one answer's tokens into text that never has to be taken back.

    A tail that may still grow into a stop string is held back, together with its token ids.
    """

    decode: Callable[[list[int]], str]
    stop: Sequence[str] = ()
    stopped: bool = field(default=False, init=False)
    _window: list[int] = field(default_factory=list, init=False)  # tokens decoded together
    _read: int = field(default=0, init=False)  # tokens of the window whose text is out
    _tail: str = field(default="", init=False)  # text held back
    _held: list[tuple[int, int]] = field(default_factory=list, init=False)  # token, where it ends

    def push(self, token: int) -> Piece:
        """Take the next token.  After `stopped` turns true nothing more may be pushed."""
        if not self.stop:  # nothing is ever held back
            return Piece(self._decoded(token), (token,))
        start = len(self._tail)
        self._tail += self._decoded(token)
        self._held.append((token, len(self._tail)))
        cut = _first_stop(self._tail, self.stop, start)
        if cut is not None:
            return self._end_at(cut)
        return self._show(len(self._tail) - _longest_possible_start(self._tail, self.stop))

    def flush(self) -> Piece:
        """Show what was held back, the answer having ended otherwise than by a stop string."""
        return self._show(len(self._tail))

    def _decoded(self, token: int) -> str:
        """Return the text that token completes; decoding needs its neighbours for spacing."""
        before = self.decode(self._window[: self._read])
        self._window.append(token)
        after = self.decode(self._window)
        if after.endswith(BROKEN):
            return ""
        self._window = self._window[self._read :]
        self._read = len(self._window)
        return after[len(before) :]

    def _show(self, length: int) -> Piece:
        text, self._tail = self._tail[:length], self._tail[length:]
        ready = tuple(token for token, end in self._held if end <= length)
        self._held = [(token, end - length) for token, end in self._held if end > length]
        return Piece(text, ready)

    def _end_at(self, cut: int) -> Piece:
        """Stop: keep the tokens that begin before the stop string, and nothing of it."""
        self.stopped = True
        starts = [0, *(end for _, end in self._held)]
        kept = tuple(
            token for (token, _), start in zip(self._held, starts, strict=False) if start < cut
        )
        piece = Piece(self._tail[:cut], kept)
        self._tail, self._held = "", []
        return piece


def _first_stop(text: str, stops: Sequence[str], grown_from: int) -> int | None:
    """Return where the earliest stop string begins; it must reach into the text grown last."""
    found = [text.find(stop, max(0, grown_from - len(stop) + 1)) for stop in stops]
    return min((at for at in found if at >= 0), default=None)


def _longest_possible_start(text: str, stops: Sequence[str]) -> int:
    """Return the length of the longest tail of text that begins some stop string."""
    lengths = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(lengths, default=0)
