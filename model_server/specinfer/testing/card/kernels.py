"""Our kernels' launches on the pretend card: interpreted, or by the reference that defines them."""

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from specinfer.testing.card.errors import CardError
from specinfer.testing.card.tensor import CardTensor

if TYPE_CHECKING:
    from specinfer.testing.card.card import Card

# The functions that a backend of plain operators stands on: they may look at what they like, as
# a kernel may.
DEFINITIONS = {
    "specinfer_kernels.tree_attention.reference": ("define",),
    "specinfer_kernels.sampling.reference": ("warp_rows", "draw_tokens", "walk_trees"),
}
LAUNCHERS = tuple(
    f"specinfer_kernels.{part}.triton" for part in ("tree_attention", "commit_kv", "sampling")
)


def shown_to(card: "Card") -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield what replaces which name of which module while the card stands in."""
    for module, names in DEFINITIONS.items():
        place = importlib.import_module(module)
        for name in names:
            yield place, name, _defined(card, getattr(place, name))
    if os.environ.get("TRITON_INTERPRET") == "1":
        for place in map(importlib.import_module, LAUNCHERS):
            for name, value in list(vars(place).items()):
                if type(value).__name__ == "InterpretedFunction":
                    yield place, name, Kernel(card, value)


class Kernel:
    """A Triton kernel that is launched on the card."""

    def __init__(self, card: "Card", kernel: Any) -> None:
        self._card, self._kernel = card, kernel

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            if any(isinstance(x, Tensor) and not isinstance(x, CardTensor) for x in args):
                raise CardError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
            self._card.launch(self._run, grid, *args, **kwargs)

        return launch

    def _run(self, grid: Any, *args: Any, **kwargs: Any) -> None:
        with _disable_current_modes():  # nobody sees into a kernel
            self._kernel[grid](*args, **kwargs)


def _defined(card: "Card", function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that counts as one launch where the card's tensors come in."""

    def instead(*args: Any, **kwargs: Any) -> Any:
        given = {id(x): x for x in _tensors((args, kwargs))}
        here = [isinstance(x, CardTensor) for x in given.values()]
        if not any(here):
            return function(*args, **kwargs)
        if not all(here):
            raise CardError(f"{function.__name__}: tensors on cpu and on cuda:0")

        def call(*held: Tensor) -> Any:
            own_args, own_kwargs = _swapped((args, kwargs), dict(zip(given, held, strict=True)))
            with _disable_current_modes():  # nobody sees into a kernel
                return function(*own_args, **own_kwargs)

        return card.launch(call, *given.values())

    return instead


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _tensors([getattr(value, f.name) for f in dataclasses.fields(value)])


def _swapped(value: Any, by: dict[int, Tensor]) -> Any:
    """Return a value with its tensors exchanged."""
    if isinstance(value, Tensor):
        return by[id(value)]
    if isinstance(value, dict):
        return {name: _swapped(part, by) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_swapped(part, by) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _swapped(getattr(value, f.name), by) for f in dataclasses.fields(value)}
        return type(value)(**parts)
    return value
