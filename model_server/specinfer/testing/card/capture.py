"""What a CUDA graph holds: operations on addresses, done again as often as it is replayed."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from specinfer.testing.card.errors import CaptureError
from specinfer.testing.card.tensor import CardTensor, Memory
from specinfer.testing.card.transfers import spoil

Step = tuple[Callable[..., Any], Any, Any, list[tuple[int, Tensor]]]


class Recording:
    """The operations between a capture's beginning and its end."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._made: list[Tensor] = []
        self._own: dict[int, Memory] = {}  # memory of the graph's own, by id
        self._read: dict[int, weakref.ref[Memory]] = {}

    def add(
        self,
        call: Callable[..., Any],
        args: Any,
        kwargs: Any,
        result: Any,
        given: Sequence[CardTensor],
        out: Any,
    ) -> None:
        """Note a call, what it was given of the card's, and what it returned."""
        for memory in (tensor.memory for tensor in given):
            if id(memory) not in self._own:
                self._read[id(memory)] = weakref.ref(memory)
        known = {id(tensor.memory) for tensor in given}
        fresh = []
        leaves = zip(tree_leaves(result), tree_leaves(out), strict=True)
        for place, (held, shown) in enumerate(leaves):
            if isinstance(shown, CardTensor) and id(shown.memory) not in known:
                self._own[id(shown.memory)] = shown.memory
                fresh.append((place, held))
        self._made += [held for _, held in fresh]
        self._steps.append((call, args, kwargs, fresh))

    def forget(self) -> None:
        """Spoil what is the graph's own: while CUDA captures, nothing runs."""
        for tensor in self._made:
            spoil(tensor)

    def replay(self) -> int:
        """Do it all again on the same memory; return how many operations that was."""
        if any(memory() is None for memory in self._read.values()):
            raise CaptureError("the graph reads memory that was freed after its capture")
        with _disable_current_modes():
            self.forget()
            for call, args, kwargs, fresh in self._steps:
                results = tree_leaves(call(*args, **kwargs))
                for place, held in fresh:
                    held.copy_(results[place])
        return len(self._steps)
