"""A pass of decoder.c laid out once and run part by part, as its tokens become known.

Between the levels of a drafted tree nothing changes but tokens; laying each level out anew would
take as long as the two layers of an SSM.
"""

import numpy as np
import torch
from torch import Tensor

from specinfer.frame import Frame
from specinfer.kv_cache import KVCache
from specinfer.lean.native.described import at
from specinfer.lean.native.run import NativeDecoder


class NativeLayout:
    """The rows of one sequence, at most WORD of them."""

    def __init__(self, decoder: NativeDecoder, frame: Frame, cache: KVCache) -> None:
        batch = frame.batch
        assert batch.requests == 1 and batch.ancestors.shape[1] == 1
        self._decoder, self._frame = decoder, frame
        self._given, self._turn = decoder.given(frame, cache)
        # Where a part's numbers go, so that pointers are taken once.
        self._tokens, self._wanted = torch.empty_like(frame.tokens), torch.empty_like(frame.tokens)
        self._bounds = torch.tensor([0, 0, int(batch.contexts[0])], dtype=torch.int32)
        self._places = self._tokens.numpy(), self._wanted.numpy(), self._bounds.numpy()
        self._context = int(batch.contexts[0])
        self._given.wanted, self._given.starts = at(self._wanted), at(self._bounds)
        self._given.contexts = at(self._bounds[2:])
        self._all = batch.ancestors.numpy()[:, 0].view(np.uint64)
        self._move(0)

    def run(self, tokens: list[int], first: int, wanted: list[int]) -> Tensor:
        """Run the rows from first on, as many as there are tokens; return the wanted rows' logits.

        The rows before first, run earlier, must be ancestors of all others: they are context now.
        """
        rows, given, (ids, rowed, bounds) = len(tokens), self._given, self._places
        ids[:rows] = tokens
        rowed[: len(wanted)] = wanted
        rowed[: len(wanted)] -= first
        bounds[1:] = rows, self._context + first
        if first != self._first:
            self._move(first)
        x, logits = self._decoder.embedded(self._tokens[:rows]), self._decoder.room(len(wanted))
        given.x, given.logits, given.rows, given.wanted_rows = at(x), at(logits), rows, len(wanted)
        self._decoder.decode(given)
        return logits

    def _move(self, first: int) -> None:
        """Begin at another row."""
        given, (cos, sin), self._first = self._given, self._turn, first
        self._ancestors = self._all[first:] >> np.uint64(first)
        given.ancestors = self._ancestors.ctypes.data
        given.slots = at(self._frame.slots) + first * 8
        turned = first * cos.stride(0) * cos.itemsize
        given.cos, given.sin = at(cos) + turned, at(sin) + turned
