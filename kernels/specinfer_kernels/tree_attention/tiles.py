"""How a CPU cuts a step: which rows share one fused-attention call, and what they must not see."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import WORD, TreeBatch

ROW_BLOCK = 128  # rows of one call: a chunk's first rows need not read its last keys
# Costs in units of one row seeing one key, 43 ns for SmolLM2's heads on one thread: a call takes
# 10 us, bringing a key to it 0.15 us, and gathering that key beforehand as long again.
CALL_COST = 256
KEY_COST = 4
# One thread's call gathers no more keys for trees of many rows: a larger copy leaves the cache
# before it is read.  Several threads need the whole batch to share, few rows are soon done.
GATHERED_KEYS, FEW_ROWS = 2048, 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows first .. first + rows - 1 of the batch, which see at most `keys` cache entries."""

    request: int
    first: int
    rows: int
    context: int
    keys: int
    run: int | None  # the slot of the first key, where all keys lie in order

    @property
    def span(self) -> slice:
        return slice(self.first, self.first + self.rows)


@dataclass(frozen=True, slots=True)
class Units:
    """What to gather for B requests: units of `size` slots, of which keys are `count` from start.

    Requests of unequal length are listed by single slots, a shorter one's last repeated: nothing
    that belongs to others is read.
    """

    listed: NDArray[np.int64]  # [B, n]
    size: int
    start: int
    count: int

    def by_slot(self) -> "Units":
        """List the same by single slots."""
        slots = self.listed[:, :, None] * self.size + np.arange(self.size)
        wanted = slots.reshape(len(slots), -1)[:, self.start : self.start + self.count]
        return Units(wanted, 1, 0, self.count)


@dataclass(frozen=True, slots=True)
class Tile:
    """Pieces answered by one call, padded to the longest: [B, T] rows by L keys."""

    pieces: tuple[Piece, ...]
    rows: int
    keys: int

    @classmethod
    def of(cls, *pieces: Piece) -> "Tile":
        rows, keys = max(p.rows for p in pieces), max(p.keys for p in pieces)
        return cls(tuple(sorted(pieces, key=lambda p: p.first)), rows, keys)

    @property
    def run(self) -> int | None:
        """The slot of the first key, where the keys are read in place."""
        return self.pieces[0].run if len(self.pieces) == 1 else None

    @property
    def cost(self) -> int:
        each = self.rows + (KEY_COST if self.run is not None else 2 * KEY_COST)
        return len(self.pieces) * self.keys * each + CALL_COST

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

    def units(self, batch: TreeBatch, skip: int) -> Units:
        """Return where the keys lie, but for the first `skip`."""
        tables, size = batch.pages.numpy(), batch.page_size
        requests = [piece.request for piece in self.pieces]
        if all(piece.keys == self.keys for piece in self.pieces):
            first, end = skip // size, -(-self.keys // size)
            pages = tables[requests, first:end].astype(np.int64)
            return Units(pages, size, skip - first * size, self.keys - skip)
        last = np.array([[piece.keys - 1] for piece in self.pieces])
        places = np.minimum(np.arange(skip, self.keys), last)
        pages = tables[np.array(requests)[:, None], places // size].astype(np.int64)
        return Units(pages * size + places % size, 1, 0, self.keys - skip)

    def unmasked(self, window: int | None) -> int:
        """Return how many leading keys every row sees."""
        return 0 if window is not None else min(piece.context for piece in self.pieces)

    def sees_all(self, window: int | None) -> bool:
        """Tell whether every row sees every key."""
        return self.rows == 1 and window is None and all(p.keys == self.keys for p in self.pieces)

    def bias(self, tree: Tensor, batch: TreeBatch, window: int | None, skip: int) -> Tensor:
        """Return what to add to the scores of keys from `skip` on, [B, T, L]: 0 or minus infinity.

        tree is `tree_bias` of the batch.
        """
        parts = [self._bias(piece, tree, batch, window)[:, skip:] for piece in self.pieces]
        return torch.stack(parts) if len(parts) > 1 else parts[0][None]

    def _bias(self, piece: Piece, tree: Tensor, batch: TreeBatch, window: int | None) -> Tensor:
        """Return one piece's share, [T, L]; a row of padding sees what the last one sees."""
        seen = pad(tree[piece.span, : piece.keys - piece.context], (piece.context, 0))
        if window is not None:
            seen.masked_fill_(_too_old(piece, batch, window), -torch.inf)
        if piece.keys < self.keys:
            seen = pad(seen, (0, self.keys - piece.keys), value=-torch.inf)
        if piece.rows < self.rows:
            seen = seen[torch.arange(self.rows).clamp(max=piece.rows - 1)]
        return seen

    def unseen(self, batch: TreeBatch, window: int | None) -> int:
        """Return how many leading keys the window hides from every row."""
        if window is None or len(self.pieces) > 1:
            return 0
        piece = self.pieces[0]
        oldest = int(batch.positions[piece.span].min()) - window + 1
        return min(max(oldest, 0), piece.context)


def tiles_of(batch: TreeBatch) -> tuple[Tile, ...]:
    """Cut the batch: alike pieces share a tile as long as that costs less than a call."""
    tiles: list[Tile] = []
    for piece in sorted(_pieces(batch), key=lambda p: (p.rows, p.keys)):
        alone = Tile.of(piece)
        grown = Tile.of(*tiles[-1].pieces, piece) if tiles else alone
        small = grown.rows <= FEW_ROWS or len(grown.pieces) * grown.keys <= GATHERED_KEYS
        small = small or torch.get_num_threads() > 1
        if tiles and small and grown.cost <= tiles[-1].cost + alone.cost:
            tiles[-1] = grown
        else:
            tiles.append(alone)
    return tuple(tiles)


def tree_bias(batch: TreeBatch, dtype: torch.dtype) -> Tensor:
    """Return [N, max_rows]: 0 where a row sees that row of its request, else minus infinity."""
    words = batch.ancestors.numpy()
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=batch.max_rows, bitorder="little")
    hidden = torch.from_numpy(bits == 0)
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)


def check_ancestors(batch: TreeBatch) -> None:
    """Raise KernelError unless every row sees itself and no later row of its request."""
    starts = batch.starts.numpy()
    words = batch.ancestors.numpy()[: starts[-1]].view(np.uint64)
    row = np.arange(len(words))
    own = row - starts[:-1].repeat(starts[1:] - starts[:-1])
    word = own // WORD
    # What a row's own word holds from its own bit on: nothing but that bit.
    rest = words[row, word] >> (own % WORD).astype(np.uint64)
    behind = words.shape[1] > 1 and words[np.arange(words.shape[1]) > word[:, None]].any()
    if (rest != 1).any() or behind:
        blind = not (rest & np.uint64(1)).all()
        told = "every row must see itself" if blind else "a row may not see a later one"
        raise KernelError(f"ancestors: {told}")


def _pieces(batch: TreeBatch) -> Iterable[Piece]:
    starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
    tables = batch.pages.numpy()
    for request, context in enumerate(contexts):
        first, rows = starts[request], starts[request + 1] - starts[request]
        if batch.padded and rows == 0:
            continue
        if not 1 <= rows <= batch.max_rows or not rows <= context + rows <= batch.max_total:
            limits = f"{batch.max_rows} rows, {batch.max_total} in all"
            raise KernelError(f"request {request}: {rows} rows after {context}; limits {limits}")
        for offset in range(0, rows, ROW_BLOCK):
            count = min(ROW_BLOCK, rows - offset)
            keys = context + offset + count
            pages = tables[request, : -(-keys // batch.page_size)].tolist()
            in_order = pages == [*range(pages[0], pages[0] + len(pages))]
            run = pages[0] * batch.page_size if in_order else None
            yield Piece(request, first + offset, count, context, keys, run)


def _too_old(piece: Piece, batch: TreeBatch, window: int) -> Tensor:
    rows_at = batch.positions[piece.span]
    first_row = piece.first + piece.rows - (piece.keys - piece.context)
    fresh_at = batch.positions[first_row : piece.first + piece.rows]
    keys_at = torch.cat([torch.arange(piece.context, dtype=torch.int32), fresh_at])
    return rows_at[:, None] - keys_at >= window
