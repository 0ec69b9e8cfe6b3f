"""One paged key/value cache a model (paper, section 4.2: a single cache for the whole token tree).

Every sequence holds a list of pages.  The rows of a step are written behind what is committed;
after verification only the accepted path is compacted onto the end of it.  Full pages are known
by the hash of everything up to them, so that later sequences with the same beginning share them
without a copy; pages that nobody holds stay until their place is needed, oldest first.
"""

import hashlib
import math
import mmap
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from specinfer.errors import SpecInferError
from specinfer.transfer import send
from specinfer_kernels import by_head, commit_kv

PageKey = bytes  # digest of the tokens of this page and of all pages before it


class OutOfPagesError(SpecInferError):
    """More pages are needed than are free."""


@dataclass(slots=True, eq=False)
class CachedSequence:
    """A sequence's share of the cache: its committed tokens and the pages under them."""

    tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    keys: list[PageKey] = field(default_factory=list)  # of the full pages, in order

    @property
    def length(self) -> int:
        return len(self.tokens)


class Commit(NamedTuple):
    """What a step leaves in the cache: rows counted from the sequence's end, and their tokens."""

    sequence: CachedSequence
    rows: Sequence[int]
    tokens: Sequence[int]


class KVCache:
    """Pages of keys and values for all layers, kv [L, 2, S, K, D].

    In a CPU's memory it is [L, 2, K, S, D], see `by_head`.
    """

    def __init__(
        self,
        *,
        layers: int,
        heads: int,
        width: int,
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        slots = (pages + 1) * page_size  # a page that nobody gets: rows of padding write there
        self.spare_slot = slots - 1
        if not by_head(device):
            self.kv = _zeros((layers, 2, slots, heads, width), dtype, device)
        else:
            self.kv = _zeros((layers, 2, heads, slots, width), dtype, device).transpose(2, 3)
        self.page_size = page_size
        self.pages = pages
        self._free = list(range(pages))[::-1]  # low pages first: neighbours make a plain slice
        self._holders = [0] * pages
        self._known: dict[PageKey, int] = {}
        self._key_of: dict[int, PageKey] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # known pages that nobody holds

    @property
    def available(self) -> int:
        """Pages that can be had now, those of idle prefixes included."""
        return len(self._free) + len(self._idle)

    @property
    def used(self) -> int:
        """Pages held by live sequences."""
        return self.pages - self.available

    def open(self, tokens: Sequence[int]) -> CachedSequence:
        """Start a sequence on the pages already known for its beginning.

        At least the last token is left out: its row is what the next step computes.
        """
        sequence = CachedSequence()
        for start in range(0, len(tokens) - self.page_size, self.page_size):
            key = _key(sequence, tokens[start : start + self.page_size])
            page = self._known.get(key)
            if page is None:
                break
            self._hold(page)
            sequence.pages.append(page)
            sequence.keys.append(key)
            sequence.tokens.extend(tokens[start : start + self.page_size])
        return sequence

    def reserve(self, sequence: CachedSequence, rows: int) -> None:
        """Make place for rows behind the sequence; raises OutOfPagesError and changes nothing."""
        wanted = -(-(len(sequence.tokens) + rows) // self.page_size) - len(sequence.pages)
        if wanted <= 0:
            return
        if wanted > self.available:
            raise OutOfPagesError(f"{wanted} pages are needed, {self.available} are free")
        sequence.pages.extend(sorted(self._take() for _ in range(wanted)))

    def slots(self, sequence: CachedSequence, start: int, count: int) -> list[int]:
        """Return the slots of positions start … start+count-1."""
        size, pages = self.page_size, sequence.pages
        return [pages[i // size] * size + i % size for i in range(start, start + count)]

    def commit(self, commits: Sequence[Commit]) -> None:
        """Keep the given rows of each sequence, moved together behind what it holds."""
        source: list[int] = []
        target: list[int] = []
        for commit in commits:
            end = commit.sequence.length
            for place, row in enumerate(commit.rows):
                if row != place:
                    source += self.slots(commit.sequence, end + row, 1)
                    target += self.slots(commit.sequence, end + place, 1)
            commit.sequence.tokens.extend(commit.tokens)
            self._learn(commit.sequence)
        if source:
            self.move(source, target)

    def move(self, source: list[int], target: list[int]) -> None:
        """Copy keys and values from slots to slots, in all layers."""
        device = self.kv.device
        commit_kv(self.kv, send(source, device), send(target, device))

    def release(self, sequence: CachedSequence) -> None:
        """Give a sequence's pages back; known ones stay as idle prefixes."""
        for page in reversed(sequence.pages):
            self._holders[page] -= 1
            if self._holders[page] == 0:
                self._retire(page)
        sequence.tokens, sequence.pages, sequence.keys = [], [], []

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the pools of keys and of values of one layer, [S, K, D] each."""
        return self.kv[index, 0], self.kv[index, 1]

    def _learn(self, sequence: CachedSequence) -> None:
        """Make the pages that have become full known to later sequences."""
        size = self.page_size
        while (len(sequence.keys) + 1) * size <= sequence.length:
            index = len(sequence.keys)
            key = _key(sequence, sequence.tokens[index * size : (index + 1) * size])
            sequence.keys.append(key)
            page = sequence.pages[index]
            if key not in self._known and page not in self._key_of:
                self._known[key] = page
                self._key_of[page] = key

    def _hold(self, page: int) -> None:
        self._holders[page] += 1
        self._idle.pop(page, None)

    def _take(self) -> int:
        page = self._free.pop() if self._free else self._forget_oldest()
        self._holders[page] = 1
        return page

    def _forget_oldest(self) -> int:
        page, _ = self._idle.popitem(last=False)
        del self._known[self._key_of.pop(page)]
        return page

    def _retire(self, page: int) -> None:
        if page in self._key_of:
            self._idle[page] = None
        else:
            self._free.append(page)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros; in host memory they take room only once written to, as torch's do not."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(block, dtype=dtype).view(shape)


def _key(sequence: CachedSequence, tokens: Sequence[int]) -> PageKey:
    """Name a page by its tokens and by all that precedes it; a collision would mix up answers."""
    before = sequence.keys[-1] if sequence.keys else b""
    return hashlib.blake2b(before + array("q", tokens).tobytes(), digest_size=16).digest()
