"""Starting the ranks: torchrun around `python -m specinfer.parallel`, and rank 0's connection.

torchrun's own variables (PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT) spread the
ranks over machines; https://docs.pytorch.org/docs/stable/elastic/run.html has them all.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from specinfer.config import EngineConfig
from specinfer.errors import ConfigError, SpecInferError

POLL_S = 0.1
RANKS_END_S = 5  # between torchrun's SIGTERM to the ranks and its SIGKILL

Command = Callable[[str], Sequence[str]]  # rank 0's address -> the program that starts all ranks


class RanksLostError(SpecInferError):
    """The processes that were to run the model have ended."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The machines that share one model, and which of them this one is."""

    count: int
    own: int

    @classmethod
    def named_in(cls, environ: Mapping[str, str]) -> "Nodes":
        """Read torchrun's variables; raises ConfigError."""
        values = [environ.get("PET_NNODES", "1"), environ.get("PET_NODE_RANK", "0")]
        if not all(value.isdecimal() for value in values):
            raise ConfigError(f"PET_NNODES and PET_NODE_RANK must be numbers, got {values}")
        return cls(*map(int, values))

    def ranks_here(self, ranks: int) -> int:
        if ranks % self.count:
            raise ConfigError(f"tensor_parallel: {ranks} ranks do not divide by {self.count} nodes")
        return ranks // self.count


def torchrun(ranks: int, nodes: Nodes, address: str | None = None) -> list[str]:
    """Return the command that runs this node's ranks; rank 0 connects to the address."""
    alone = ["--standalone", "--local-addr", "127.0.0.1"] if nodes.count == 1 else []
    return [
        *(sys.executable, "-m", "torch.distributed.run", *alone),
        *("--nproc-per-node", str(nodes.ranks_here(ranks))),
        *("--shutdown-timeout", str(RANKS_END_S)),
        *("--module", "specinfer.parallel"),
        *([address] if address else []),
    ]


def environment(config: EngineConfig, nodes: Nodes) -> dict[str, str]:
    """Return the ranks' environment: this process's, without names to resolve on one machine."""
    given = {"GLOO_SOCKET_IFNAME": "lo"} if nodes.count == 1 else {}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if config.device == "cpu" else {}
    threads = {"OMP_NUM_THREADS": str(config.threads or 1)}
    return threads | given | dict(os.environ) | hidden


def launch(
    command: Command, environ: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start the ranks and wait until rank 0 has connected; raises RanksLostError."""
    with (
        tempfile.TemporaryDirectory(prefix="specinfer-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        address = f"{folder}/rank0"
        listener.bind(address)
        listener.listen(1)
        listener.settimeout(POLL_S)
        # Out of the terminal's process group: Ctrl-C is for this process, which drains first.
        process = subprocess.Popen(
            command(address), env=environ, stdin=subprocess.DEVNULL, start_new_session=True
        )
        while process.poll() is None:
            with contextlib.suppress(TimeoutError):
                return process, Connection(listener.accept()[0].detach())
    raise RanksLostError(f"the ranks ended with status {process.returncode} before they had begun")
