"""The card itself: runs every operation on what its tensors hold, under the rules."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self
from weakref import WeakSet

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from specinfer.testing.card import operators, rules
from specinfer.testing.card.capture import Recording
from specinfer.testing.card.errors import CaptureError, CardError
from specinfer.testing.card.tensor import CUDA, CardTensor, Memory
from specinfer.testing.card.transfers import Transfers

OWN = ("torch/", "specinfer/testing/card/")
MOVES = {"to", "_to_copy", "copy_", "cpu", "cuda"}


class Card:
    """A GPU that is not there.  As a context manager it stands in for torch.cuda's."""

    def __init__(self, multiprocessors: int = 4, capability: tuple[int, int] = (8, 6)) -> None:
        self.multiprocessors = multiprocessors
        self.capability = capability
        self.waits: Counter[str] = Counter()  # read, send or wait, and where from
        self.launched = 0  # operations
        self.seen = 0  # of those, how many the host knows to have run
        self.recording: Recording | None = None
        self.transfers = Transfers()
        self.generators: dict[int, torch.Generator] = {}  # of its own, by address
        self._pinned: WeakSet[Any] = WeakSet()  # storages
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        from specinfer.testing.card.cuda import stand_in

        self._stack.enter_context(stand_in(self))
        self._stack.enter_context(self.entered())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread's calls of torch come by."""
        with _Calls(self), _Operations(self):
            yield

    def count(self) -> Counter[str]:
        """Return how often the host waited, by kind, since it was last asked."""
        kinds: Counter[str] = Counter()
        for place, times in self.waits.items():
            kinds[place.split()[0]] += times
        self.waits.clear()
        return kinds

    def wait(self, kind: str, until: int | None = None) -> None:
        """Let the host wait until so many operations have run, all of them by default."""
        if self.recording is not None:
            raise CaptureError(f"operation not permitted when stream is capturing: {kind}")
        self.waits[f"{kind} at {_caller()}"] += 1
        self.seen = max(self.seen, self.launched if until is None else until)
        self.transfers.done(self.seen)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one of torch's operations where its operands, or its wishes, say."""
        name = func.overloadpacket.__name__
        leaves = tree_leaves((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        here = any(isinstance(x, CardTensor) for x in tensors)
        target = next((x for x in leaves if isinstance(x, torch.device)), None)
        if not here and (target is None or target.type != "cuda"):
            return self._on_host(func, name, args, kwargs)
        if name in MOVES:
            return self.transfers.move(self, name, args, kwargs)
        rules.refuse(func, name, args, tensors)
        self._check_random(func, args, kwargs)
        if (kind := rules.wait(name, args, kwargs)) is not None:
            self.wait(kind)
        if target is not None and target.type == "cpu":  # as zeros_like may have it
            return func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if target is not None:
            args, kwargs = tree_map(_as_host, (args, kwargs))
        return self.launch(operators.own(name) or func, *args, **kwargs)

    def launch(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a call on what the card's tensors hold; its results are on the card."""
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, CardTensor)]
        self.launched += 1
        held_args, held_kwargs = tree_map(_held, (args, kwargs))
        result = call(*held_args, **held_kwargs)
        known = {id(x.held): x for x in given}
        memories = {x.held.untyped_storage()._cdata: x.memory for x in given}
        out = tree_map(lambda x: self.put(x, known, memories), result)
        if self.recording is not None:
            self.recording.add(call, held_args, held_kwargs, result, given, out)
        for tensor in given:
            assert tensor.shape == tensor.held.shape, "shapes that change in place: not modelled"
        return out

    def put(
        self,
        held: Any,
        known: dict[int, CardTensor] | None = None,
        memories: dict[int, Memory] | None = None,
    ) -> Any:
        """Show what is held as a tensor of the card, if it is one."""
        if not isinstance(held, Tensor):
            return held
        if known and id(held) in known:
            return known[id(held)]
        memory = (memories or {}).get(held.untyped_storage()._cdata) or Memory()
        return CardTensor(self, held, memory)

    def is_pinned(self, host: Tensor) -> bool:
        return host.untyped_storage() in self._pinned

    def pin(self, host: Tensor) -> Tensor:
        if self.recording is not None:
            raise CaptureError("operation not permitted when stream is capturing: pinned memory")
        self._pinned.add(host.untyped_storage())
        return host

    def _on_host(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "is_pinned":
            return self.is_pinned(args[0])
        if name in ("pin_memory", "_pin_memory"):
            return self.pin(args[0].clone())
        pinned = kwargs.get("pin_memory")
        result = func(*args, **kwargs | {"pin_memory": False} if pinned else kwargs)
        return self.pin(result) if pinned else result

    def _check_random(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata not in self.generators:
            raise CardError("expected a 'cuda' device type for generator but found 'cpu'")
        idle = "dropout" in func.name() and any(x is False for x in args)  # not in training
        if self.recording and torch.Tag.nondeterministic_seeded in func.tags and not idle:
            raise CaptureError(f"{func}: draws anew only by chance when a graph is replayed")


class _Operations(TorchDispatchMode):
    """Brings what has no operand on the card yet."""

    def __init__(self, card: Card) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._card = card

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._card.run(func, args, kwargs or {})


class _Calls(TorchFunctionMode):
    """Puts calls so that no C++ of torch asks for a GPU before it asks for an operation."""

    def __init__(self, card: Card) -> None:
        super().__init__()
        self._card = card

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor):
            return self._made(func, args, kwargs)
        if func is torch._has_compatible_shallow_copy_type:
            return False  # parameters are replaced: what one holds cannot be
        if func is Tensor.to:
            like = next((x for x in args[1:] if isinstance(x, CardTensor)), None)
            args = args if like is None else (args[0], CUDA, like.dtype)
            args, kwargs = tree_map(_numbered, (args, kwargs))
        return func(*args, **kwargs)

    def _made(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        """Make a tensor on the host, where its numbers are, and bring it where it is wanted."""
        device, pinned = kwargs.pop("device", None), kwargs.pop("pin_memory", False)
        if args and isinstance(args[0], CardTensor):
            return args[0].to(device or args[0].device, kwargs.get("dtype"))
        made: Tensor = func(*args, **kwargs)
        made = self._card.pin(made) if pinned else made
        return made if device is None else made.to(_numbered(device))


def _numbered(value: Any) -> Any:
    """Return cuda:0 for any way to say the only GPU."""
    if isinstance(value, str | torch.device) and torch.device(value).type == "cuda":
        return CUDA
    return value


def _held(value: Any) -> Any:
    return value.held if isinstance(value, CardTensor) else value


def _as_host(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _caller() -> str:
    """Return the nearest line that is neither torch's nor the card's."""
    frame = sys._getframe(1)
    while frame.f_back and any(part in frame.f_code.co_filename for part in OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
