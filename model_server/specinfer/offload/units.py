"""A model's layers as units of weights that come and go together."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from specinfer.errors import ModelFolderError
from specinfer.offload.files import BLOCK, Place

GAP = 1 << 20  # bytes between two weights that one read may take with it


@dataclass(frozen=True, slots=True)
class Read:
    """Blocks of a file, and their place in the unit's buffer."""

    file: Path
    start: int
    count: int
    into: int


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter: where it belongs, and where its bytes are in the unit's buffer."""

    module: nn.Module
    name: str
    place: Place
    start: int


@dataclass(frozen=True, slots=True)
class Unit:
    """One layer."""

    module: nn.Module
    weights: tuple[Weight, ...]
    reads: tuple[Read, ...]

    @property
    def size(self) -> int:
        """Bytes of its buffer."""
        return self.reads[-1].into + self.reads[-1].count

    def bind(self, buffer: Tensor, dtype: torch.dtype) -> None:
        """Have the layer compute with the weights in a buffer."""
        for weight in self.weights:
            place = weight.place
            raw = buffer[weight.start : weight.start + place.count].view(place.dtype)
            value = raw.view(place.shape).to(dtype)
            weight.module._parameters[weight.name] = nn.Parameter(value, requires_grad=False)


def units_of(model: nn.Module, layers: int, places: dict[str, Place]) -> list[Unit]:
    """Return the layers in the order they run; raises ModelFolderError."""
    stacks = (
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == layers
    )
    name, stack = next(stacks, ("", nn.ModuleList()))
    if not len(stack):
        raise ModelFolderError("offload: this model is no stack of layers that could be off-loaded")
    return [_unit(layer, f"{name}.{place}", places) for place, layer in enumerate(stack)]


def _unit(layer: nn.Module, prefix: str, places: dict[str, Place]) -> Unit:
    found = {name: find(places, f"{prefix}.{name}") for name, _ in layer.named_parameters()}
    reads = _reads(list(found.values()))
    weights = []
    for name, place in found.items():
        owner, _, own = name.rpartition(".")
        weights.append(Weight(layer.get_submodule(owner), own, place, _within(reads, place)))
    return Unit(layer, tuple(weights), reads)


def _reads(places: list[Place]) -> tuple[Read, ...]:
    """Return whole blocks that hold all places, neighbours in one read."""
    reads: list[Read] = []
    for place in sorted(places, key=lambda place: (place.file, place.start)):
        start = place.start // BLOCK * BLOCK
        count = -(-(place.start + place.count - start) // BLOCK) * BLOCK
        last = reads[-1] if reads else None
        if last and last.file == place.file and start <= last.start + last.count + GAP:
            reads[-1] = replace(last, count=max(last.count, start + count - last.start))
        else:
            reads.append(Read(place.file, start, count, last.into + last.count if last else 0))
    return tuple(reads)


def _within(reads: tuple[Read, ...], place: Place) -> int:
    for read in reads:
        if read.file == place.file and 0 <= place.start - read.start < read.count:
            return read.into + place.start - read.start
    raise AssertionError("every place is in a read")


def find(places: dict[str, Place], name: str) -> Place:
    """Return a parameter's place; raises ModelFolderError where files name it otherwise."""
    if name not in places:
        raise ModelFolderError(f"offload: the weights hold no {name}, which is read by its name")
    return places[name]
