"""A tensor that says it lies on cuda:0, and holds a CPU's."""

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from specinfer.testing.card.card import Card

CUDA = torch.device("cuda", 0)


class Memory:
    """One allocation on the card; it is freed when no tensor shows it any more."""

    __slots__ = ("__weakref__",)


class CardTensor(Tensor):
    """What code under test sees.

    torch's own C++ takes it for a CPU's, since it enters a device before it asks any mode.
    """

    card: "Card"
    held: Tensor
    memory: Memory

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, card: "Card", held: Tensor, memory: Memory) -> "CardTensor":
        with torch.inference_mode(False):  # a view of what was made before must not be otherwise
            self: CardTensor = Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=held.device,
            )
        self.card, self.held, self.memory = card, held, memory
        return self

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        from torch.utils._pytree import tree_leaves

        own = next(x for x in tree_leaves((args, kwargs)) if isinstance(x, CardTensor))
        return own.card.run(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.card.transfers.move(self.card, "to", (self, *args), kwargs)

    def cpu(self, memory_format: Any = None) -> Tensor:
        return self.to("cpu")

    def cuda(self, *_: Any, **__: Any) -> Tensor:
        return self

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.cpu().numpy()
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"CardTensor({tuple(self.shape)}, {self.dtype})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, self.requires_grad)
        memo[id(self)] = copy
        return copy  # type: ignore[return-value]
