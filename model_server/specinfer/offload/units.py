"""A model's layers as units of weights that come and go together."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specinfer.errors import ModelFolderError
from specinfer.offload.files import Place

ALIGNMENT = 64  # bytes, of a tensor within its unit's buffer


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter: where it belongs, where its bytes are, and where in the unit's buffer."""

    module: nn.Module
    name: str
    place: Place
    start: int


@dataclass(frozen=True, slots=True)
class Unit:
    """One layer."""

    module: nn.Module
    weights: tuple[Weight, ...]
    size: int  # bytes of its buffer

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
    weights: list[Weight] = []
    size = 0
    for name, _ in layer.named_parameters():
        owner, _, own = name.rpartition(".")
        place = find(places, f"{prefix}.{name}")
        weights.append(Weight(layer.get_submodule(owner), own, place, size))
        size += -(-place.count // ALIGNMENT) * ALIGNMENT
    return Unit(layer, tuple(weights), size)


def find(places: dict[str, Place], name: str) -> Place:
    """Return a parameter's place; raises ModelFolderError where files name it otherwise."""
    if name not in places:
        raise ModelFolderError(f"offload: the weights hold no {name}, which is read by its name")
    return places[name]
