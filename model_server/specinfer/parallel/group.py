"""The ranks of one model as a torch.distributed group: NCCL between GPUs, Gloo between CPUs."""

import ctypes
import os
import signal
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Followers wait for the next pass as long as nobody asks anything.  That rank 0 is dead they
# learn from its closed socket and from torchrun.
PATIENCE = timedelta(days=3650)
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Group:
    """This rank's place among the ranks, and the line on which rank 0 speaks to the others."""

    rank: int
    size: int
    device: torch.device
    _line: dist.ProcessGroup

    @classmethod
    def join(cls, **how: Any) -> "Group":
        """Wait for all ranks; `how` goes to init_process_group, torchrun's variables otherwise."""
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", **how)
        line = dist.new_group(backend="gloo", timeout=PATIENCE)
        return cls(dist.get_rank(), dist.get_world_size(), device, line)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def tell(self, what: object) -> None:
        """Send a value to the other ranks; they must be in `hear`."""
        dist.broadcast_object_list([what], src=0, group=self._line)

    def hear(self) -> Any:
        """Wait for the next value from rank 0."""
        box: list[Any] = [None]
        dist.broadcast_object_list(box, src=0, group=self._line)
        return box[0]

    def leave(self) -> None:
        """Take the group down once all ranks are done."""
        dist.destroy_process_group()


def die_with_parent() -> None:
    """Have Linux kill this process when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
