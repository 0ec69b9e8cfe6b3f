"""A server as a child process: started, awaited, ended."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from specinfer.errors import SpecInferError


class ChildError(SpecInferError):
    """A child ended, or was not ready in time; the message is its log."""


@contextmanager
def running(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    ready: Callable[[], bool],
    seconds: float = 60.0,
) -> Iterator[Path]:
    """Run a command in folder; yields its log once it is ready."""
    path = folder / "log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + seconds
            while not ready():
                if time.monotonic() > deadline or process.poll() is not None:
                    raise ChildError(path.read_text())
                time.sleep(0.1)
            yield path
        finally:
            process.terminate()
            process.wait(20)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Tell whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
