"""The engine that a configuration asks for: in this process, or in ranks of its own."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from specinfer.config import EngineConfig

if TYPE_CHECKING:
    from specinfer.engine import Engine
    from specinfer.parallel.remote import RemoteEngine


def load_engine(config: EngineConfig) -> "Engine | RemoteEngine":
    """Load all models; takes seconds.  Raises ModelFolderError, ConfigError, RanksLostError."""
    if config.tensor_parallel > 1:
        from specinfer.parallel.remote import RemoteEngine

        return RemoteEngine.load(config)
    from specinfer.engine import Engine

    return Engine.load(config)


def take_place(config: EngineConfig, environ: Mapping[str, str]) -> None:
    """Refuse an impossible number of ranks; on any machine but the first, become its ranks.

    Raises ConfigError or ModelFolderError.  Only the first machine returns, to take requests.
    """
    from specinfer.parallel.check import check_split
    from specinfer.parallel.launch import Nodes, environment, torchrun

    nodes = Nodes.named_in(environ)
    check_split(config, nodes.ranks_here(config.tensor_parallel))
    if nodes.own:
        command = torchrun(config.tensor_parallel, nodes)
        os.execve(command[0], command, environment(config, nodes))
