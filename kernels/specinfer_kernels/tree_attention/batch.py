"""The trees of one step as tensors: who owns which rows, cache slots and ancestors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer_kernels.errors import KernelError

WORD = 64  # ancestor bits in one int64


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """B requests with N rows in all; every tensor lives on the device of the KV pools.

    A row's parent comes before it, so a row never sees a later row of its request.  A plain
    decode step is a tree of one row; a prefill chunk is a chain.
    """

    starts: Tensor  # [B+1] int32: request b owns rows starts[b] .. starts[b+1]-1
    contexts: Tensor  # [B] int32: committed cache entries, seen by every row of b
    pages: Tensor  # [B, P] int32: logical slot i is pages[b, i // page_size], offset i % page_size
    page_size: int
    ancestors: Tensor  # [N, W] int64: bit j set where the row sees row j of its request (or itself)
    positions: Tensor  # [N] int32: place in the sequence (context + depth), for sliding windows
    max_rows: int  # of one request: launch sizes need it without asking the device
    max_total: int  # of one request: context + rows
    # Requests may have no rows, and rows behind starts[-1] belong to nobody and come out as 0:
    # what a captured graph of fixed sizes needs.
    padded: bool = False

    def __post_init__(self) -> None:
        requests = self.contexts.numel()
        rows = self.positions.numel()
        _expect("starts", self.starts, torch.int32, (requests + 1,))
        _expect("contexts", self.contexts, torch.int32, (requests,))
        _expect("pages", self.pages, torch.int32, (requests, self.pages.shape[-1]))
        _expect("ancestors", self.ancestors, torch.int64, (rows, self.ancestors.shape[-1]))
        _expect("positions", self.positions, torch.int32, (rows,))
        if not 1 <= self.max_rows <= WORD * self.ancestors.shape[1]:
            room = WORD * self.ancestors.shape[1]
            raise KernelError(f"max_rows is {self.max_rows}; the ancestor words hold 1..{room}")
        if self.max_total > self.pages.shape[1] * self.page_size:
            room = self.pages.shape[1] * self.page_size
            raise KernelError(f"max_total is {self.max_total}; the block tables hold {room} slots")

    @property
    def requests(self) -> int:
        return self.contexts.numel()

    @property
    def rows(self) -> int:
        return self.positions.numel()

    @property
    def device(self) -> torch.device:
        return self.positions.device


def _expect(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if tensor.dtype != dtype or tensor.shape != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise KernelError(f"{name} must be {dtype} {shape}, not {found}")
