"""Copies between host and card: which of them wait, and what goes wrong meanwhile.

A copy that does not wait reads its source, or has its target written, only later: a source that
changed before, or a target that was read, is what a GPU would answer with garbage.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from specinfer.testing.card.errors import CaptureError, CardError
from specinfer.testing.card.tensor import CUDA, CardTensor

if TYPE_CHECKING:
    from specinfer.testing.card.card import Card


class Wish(NamedTuple):
    """What is to be where, and how."""

    source: Tensor
    device: torch.device
    dtype: torch.dtype
    late: bool  # non_blocking
    copy: bool


class Transfers:
    """Copies that were begun, in order, and how many operations come before each one's end."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, Tensor, Tensor]] = deque()  # source, and what it was
        self._fetched: deque[tuple[int, Tensor, Tensor]] = deque()  # target, and what it will be

    def done(self, seen: int) -> None:
        """Take in that the host knows so many operations to have run."""
        while self._sent and self._sent[0][0] <= seen:
            _, source, was = self._sent.popleft()
            if not _same(source, was):
                raise CardError("pinned memory was written to before its copy was known to be done")
        while self._fetched and self._fetched[0][0] <= seen:
            _, target, value = self._fetched.popleft()
            target.copy_(value)

    def move(self, card: "Card", name: str, args: Any, kwargs: dict[str, Any]) -> Tensor:
        """Do copy_, or one of the ways to say `to`."""
        if name == "copy_":
            return self._copy(card, args[0], args[1], args[2] if len(args) > 2 else kwargs)
        source, device, dtype, late, copy = _wish(args, kwargs)
        if (device.type == "cuda") == isinstance(source, CardTensor):
            if dtype == source.dtype and not copy and name != "_to_copy":
                return source
            made: Tensor = card.launch(torch.ops.aten._to_copy.default, source, dtype=dtype)
            return made
        if isinstance(source, CardTensor):
            target = torch.empty(source.shape, dtype=dtype)
            target = card.pin(target) if late else target
            self._fetch(card, target, source, late)
            return target
        self._wait_to_send(card, source, late and dtype == source.dtype)
        sent: Tensor = card.launch(lambda: source.to(dtype, copy=True))
        return sent

    def _copy(self, card: "Card", target: Tensor, source: Tensor, how: Any) -> Tensor:
        late = how if isinstance(how, bool) else how.get("non_blocking", False)
        if isinstance(target, CardTensor) and not isinstance(source, CardTensor):
            plain = target.dtype == source.dtype and target.shape == source.shape
            self._wait_to_send(card, source, late and plain and target.is_contiguous())
            card.launch(torch.ops.aten.copy_.default, target, source.clone())
        elif isinstance(target, CardTensor):
            card.launch(torch.ops.aten.copy_.default, target, source)
        elif isinstance(source, CardTensor):
            self._fetch(card, target, source, late)
        return target

    def _wait_to_send(self, card: "Card", source: Tensor, late: bool) -> None:
        if card.recording is not None:
            raise CaptureError("what is copied from the host would be copied by every replay")
        if not (late and card.is_pinned(source) and source.is_contiguous()):
            card.wait("send")
        else:
            self._sent.append((card.launched + 1, source, source.clone()))

    def _fetch(self, card: "Card", target: Tensor, source: CardTensor, late: bool) -> None:
        value = source.held.to(target.dtype).expand(target.shape).clone()
        if not (late and card.is_pinned(target)):
            card.wait("read")
            target.copy_(value)
            return
        card.launched += 1
        self._fetched.append((card.launched, target, value))
        spoil(target)


def spoil(tensor: Tensor) -> None:
    """Fill memory whose contents nobody may count on."""
    if tensor.is_floating_point():
        tensor.fill_(torch.nan)
    elif tensor.dtype == torch.bool:
        tensor.logical_not_()
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(-1).view(torch.uint8), other.view(-1).view(torch.uint8))


def _wish(args: Any, kwargs: dict[str, Any]) -> Wish:
    """Return what a call of `to` means, in any of its forms."""
    source, *rest = args
    device = CUDA if isinstance(source, CardTensor) else torch.device("cpu")
    dtype, flags = source.dtype, list[bool]()
    for value in [*rest, kwargs.get("device"), kwargs.get("dtype"), kwargs.get("other")]:
        if isinstance(value, str | torch.device):
            device = torch.device(value)
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, bool):
            flags.append(value)
    late, copy, *_ = *flags, False, False
    return Wish(source, device, dtype, kwargs.get("non_blocking", late), kwargs.get("copy", copy))
