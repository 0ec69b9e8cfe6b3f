"""A pass of decoder.c laid out once and run part by part, as its tokens become known.

Between the levels of a drafted tree nothing changes but tokens; laying each level out anew would
take as long as the two layers of an SSM.
"""

import numpy as np
import torch
from torch import Tensor

from specinfer.frame import Frame
from specinfer.kv_cache import KVCache
from specinfer.lean.native.run import NativeDecoder, at


class NativeLayout:
    """The rows of one sequence, at most WORD of them."""

    def __init__(self, decoder: NativeDecoder, frame: Frame, cache: KVCache) -> None:
        batch = frame.batch
        assert batch.requests == 1 and batch.ancestors.shape[1] == 1
        self._decoder, self._frame = decoder, frame
        self._given, self._turn = decoder.given(frame, cache)
        self._ancestors = batch.ancestors.numpy()[:, 0].view(np.uint64)
        self._context = int(batch.contexts[0])

    def run(self, tokens: list[int], first: int, wanted: list[int]) -> Tensor:
        """Run the rows from first on, as many as there are tokens; return the wanted rows' logits.

        The rows before first, run earlier, must be ancestors of all others: they are context now.
        """
        rows, given = len(tokens), self._given
        x = self._decoder.embedded(torch.tensor(tokens))
        ancestors = self._ancestors[first : first + rows] >> np.uint64(first)
        frame = np.array([0, rows, self._context + first], dtype=np.int32)
        rowed = np.array(wanted, dtype=np.int64) - first
        logits = self._decoder.room(len(wanted))
        cos, sin = self._turn
        given.x, given.logits, given.rows = at(x), at(logits), rows
        given.cos, given.sin = at(cos[first]), at(sin[first])
        given.slots = at(self._frame.slots[first:])
        given.wanted, given.wanted_rows = rowed.ctypes.data, len(wanted)
        given.ancestors = ancestors.ctypes.data
        given.starts, given.contexts = frame.ctypes.data, frame[2:].ctypes.data
        self._decoder.decode(given)
        return logits
