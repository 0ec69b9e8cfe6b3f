"""Data-parallel training: every device takes its share of a step's sequences, gradients are summed.

One process a device, started by `torchrun` (or `accelerate launch`); alone, there is one rank and
nothing to exchange.  Sums, not means, are exchanged, so the result is that of one process.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place among those that train together."""

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")
    mixed: bool = False  # multiply in bfloat16

    @classmethod
    def join(cls, environ: Mapping[str, str] = os.environ) -> "Ranks":
        """Join the processes that torchrun started, if it did."""
        local, world = int(environ.get("LOCAL_RANK", 0)), int(environ.get("WORLD_SIZE", 1))
        cuda = torch.cuda.is_available()
        device = torch.device("cuda", local) if cuda else torch.device("cpu")
        mixed = cuda or bool(torch.cpu.get_capabilities().get("avx512_bf16"))
        if world > 1:
            dist.init_process_group("nccl" if cuda else "gloo")
        return cls(int(environ.get("RANK", 0)), world, device, mixed)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, sequences: Sequence[int]) -> list[int]:
        """Return this rank's part."""
        return list(sequences[self.rank :: self.world])

    def total(self, *values: float) -> tuple[float, ...]:
        """Return the sums of the ranks' values."""
        if self.world == 1:
            return values
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return tuple(sums.tolist())

    def total_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace every gradient by the sum of the ranks', in one exchange."""
        for parameter in parameters:
            if parameter.grad is None:  # this rank had no share of the step
                parameter.grad = torch.zeros_like(parameter)
        if self.world == 1:
            return
        flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        dist.all_reduce(flat)
        parts = torch.split(flat, [p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def wait(self) -> None:
        """Return when all ranks are here."""
        if self.world > 1:
            dist.barrier()
