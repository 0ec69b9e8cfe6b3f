"""How a CPU cuts a step: which rows share one fused-attention call, and what they must not see."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch

ROW_BLOCK = 128  # rows of one call: a chunk's first rows need not read its last keys
# Costs in units of one row reading one key (2 cores, D=64): a call takes as long as 16k of them,
# and bringing one key to the call as long as 16.
CALL_COST = 16384
KEY_COST = 16
# Keys in order from which a copy pays: with cold caches, 4 rows and SmolLM2's heads, a call takes
# 402 us in place and 211 with the copy at 1024 keys, 120 and 103 at 512, 23 and 29 at 128.
COPIED_FROM = 384


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows first .. first + rows - 1 of the batch, which see at most `keys` cache entries."""

    request: int
    first: int
    rows: int
    context: int
    keys: int


@dataclass(frozen=True, slots=True)
class Entries:
    """The keys of a tile, by units of `size` slots: in order from one on, or those listed.

    Requests of unequal length are listed by single slots, a shorter one's last repeated: nothing
    that belongs to others is read.  Of each request's units the keys are `count` from `start` on.
    """

    units: int | Tensor
    size: int
    start: int
    count: int

    def of(self, pool: Tensor, requests: int, scratch: Tensor | None) -> Tensor:
        """Return [B, count, K, D]: a view of the pool, or of scratch where there is some.

        The heads of an entry lie beside each other, so attention reads in strides.  From the
        cache's memory that takes up to four times as long as from a copy just made.
        """
        if isinstance(self.units, int):
            first = self.units * self.size + self.start
            found = pool[first : first + self.count]
            return (found if scratch is None else scratch.copy_(found))[None]
        whole = pool[: len(pool) // self.size * self.size].view(-1, self.size, *pool.shape[1:])
        found = torch.index_select(whole, 0, self.units, out=scratch)
        return found.view(requests, -1, *pool.shape[1:])[:, self.start : self.start + self.count]

    def scratch_shape(self) -> tuple[int, ...] | None:
        """Return the first dimensions of the scratch that pays for itself; None: none does."""
        if isinstance(self.units, int):
            return (self.count,) if self.count >= COPIED_FROM else None
        return len(self.units), self.size


@dataclass(frozen=True, slots=True)
class Tile:
    """Pieces answered by one call, padded to the longest: [B, T] rows by L keys."""

    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        return max(piece.rows for piece in self.pieces)

    @property
    def keys(self) -> int:
        return max(piece.keys for piece in self.pieces)

    @property
    def cost(self) -> int:
        return len(self.pieces) * self.keys * (self.rows + KEY_COST) + CALL_COST

    def query_rows(self) -> slice | Tensor:
        """Return the [B * T] rows to ask for; a piece's padding repeats its last row."""
        first, width = self.pieces[0].first, self.rows
        if all(p.first == first + i * width and p.rows == width for i, p in enumerate(self.pieces)):
            return slice(first, first + len(self.pieces) * width)
        starts = torch.tensor([[piece.first] for piece in self.pieces])
        last = torch.tensor([[piece.rows - 1] for piece in self.pieces])
        return (starts + torch.arange(width).minimum(last)).flatten()

    def real_rows(self) -> Tensor | None:
        """Return which of `query_rows` are no padding; None says all."""
        if all(piece.rows == self.rows for piece in self.pieces):
            return None
        counts = torch.tensor([[piece.rows] for piece in self.pieces])
        return (torch.arange(self.rows) < counts).flatten().nonzero().flatten()

    def entries(self, batch: TreeBatch, skip: int = 0) -> "Entries":
        """Return where the keys lie, but for the first `skip`."""
        tables = batch.pages.numpy()
        if any(piece.keys < self.keys for piece in self.pieces):
            logical = np.arange(skip, self.keys)
            rows = [
                _slots(tables[p.request], logical.clip(max=p.keys - 1), batch) for p in self.pieces
            ]
            return Entries(torch.from_numpy(np.concatenate(rows)), 1, 0, self.keys - skip)
        size = batch.page_size
        first, end = skip // size, -(-self.keys // size)
        pages = tables[[piece.request for piece in self.pieces], first:end].astype(np.int64)
        in_order = len(pages) == 1 and bool((np.diff(pages[0]) == 1).all())
        units = int(pages[0, 0]) if in_order else torch.from_numpy(pages.flatten())
        return Entries(units, size, skip - first * size, self.keys - skip)

    def bias(self, tree: Tensor, batch: TreeBatch, window: int | None) -> Tensor | None:
        """Return what to add to the scores, [B, T, L]: 0, or minus infinity for a hidden key.

        tree is `tree_bias` of the batch.  None says that every row sees every key.
        """
        bias = tree.new_zeros(len(self.pieces), self.rows, self.keys)
        for out, piece in zip(bias, self.pieces, strict=True):
            fresh = piece.keys - piece.context
            out[: piece.rows, piece.context : piece.keys] = tree[_span(piece), :fresh]
            out[:, piece.keys :] = float("-inf")
            if window is not None:
                seen = out[: piece.rows, : piece.keys]
                seen.masked_fill_(_too_old(piece, batch, window), float("-inf"))
            out[piece.rows :] = out[piece.rows - 1]
        return bias if bool(bias.any()) else None

    def unseen(self, batch: TreeBatch, window: int | None) -> int:
        """Return how many leading keys the window hides from every row."""
        if window is None or len(self.pieces) > 1:
            return 0
        piece = self.pieces[0]
        oldest = int(batch.positions[_span(piece)].min()) - window + 1
        return min(max(oldest, 0), piece.context)


def tiles_of(batch: TreeBatch) -> tuple[Tile, ...]:
    """Cut the batch: alike pieces share a tile as long as padding costs less than a call."""
    tiles: list[Tile] = []
    for piece in sorted(_pieces(batch), key=lambda p: (p.rows, p.keys)):
        grown = Tile((*tiles[-1].pieces, piece)) if tiles else Tile((piece,))
        if tiles and grown.cost <= tiles[-1].cost + Tile((piece,)).cost:
            tiles[-1] = grown
        else:
            tiles.append(Tile((piece,)))
    return tuple(Tile(tuple(sorted(t.pieces, key=lambda p: p.first))) for t in tiles)


def tree_bias(batch: TreeBatch, dtype: torch.dtype) -> Tensor:
    """Return [N, max_rows]: 0 where a row sees that row of its request, else minus infinity."""
    starts = batch.starts.numpy()
    owned = int(starts[-1])
    words = batch.ancestors.numpy()[:owned]
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=batch.max_rows, bitorder="little")
    own = np.arange(owned) - np.repeat(starts[:-1], np.diff(starts))
    if not bits[np.arange(owned), own].all():
        raise KernelError("ancestors: every row must see itself")
    if (bits * (np.arange(batch.max_rows) > own[:, None])).any():
        raise KernelError("ancestors: a row may not see a later row of its request")
    hidden = torch.from_numpy(bits == 0)
    return torch.zeros(bits.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))


def _pieces(batch: TreeBatch) -> Iterable[Piece]:
    starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
    for request, context in enumerate(contexts):
        first, rows = starts[request], starts[request + 1] - starts[request]
        if batch.padded and rows == 0:
            continue
        if not 1 <= rows <= batch.max_rows or not rows <= context + rows <= batch.max_total:
            limits = f"{batch.max_rows} rows, {batch.max_total} in all"
            raise KernelError(f"request {request}: {rows} rows after {context}; limits {limits}")
        for offset in range(0, rows, ROW_BLOCK):
            count = min(ROW_BLOCK, rows - offset)
            yield Piece(request, first + offset, count, context, context + offset + count)


def _slots(
    table: NDArray[np.int32], logical: NDArray[np.int64], batch: TreeBatch
) -> NDArray[np.int64]:
    """Return the slots of a request's logical places."""
    pages = table[logical // batch.page_size].astype(np.int64)
    return pages * batch.page_size + logical % batch.page_size


def _span(piece: Piece) -> slice:
    return slice(piece.first, piece.first + piece.rows)


def _too_old(piece: Piece, batch: TreeBatch, window: int) -> Tensor:
    rows_at = batch.positions[_span(piece)]
    first_row = piece.first + piece.rows - (piece.keys - piece.context)
    fresh_at = batch.positions[first_row : piece.first + piece.rows]
    keys_at = torch.cat([torch.arange(piece.context, dtype=torch.int32), fresh_at])
    return rows_at[:, None] - keys_at >= window
