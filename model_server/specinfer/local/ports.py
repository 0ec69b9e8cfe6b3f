"""The four loopback ports, taken before anything slow begins."""

import socket
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from specinfer.local.errors import LocalStackError

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the four services listen; 0 is any free port."""

    rest: int = 8000
    container: int = 8080
    runtime: int = 8081
    dynamodb: int = 8082


class Listeners:
    """A listening socket for each service, closed on exit. Raises LocalStackError, naming the
    port, its use and the option that moves it, if one is taken.
    """

    def __init__(self, ports: Ports) -> None:
        with ExitStack() as opened:
            self.rest = opened.enter_context(_bind(ports.rest, "the REST API", "port"))
            self.container = opened.enter_context(
                _bind(ports.container, "the container", "container-port")
            )
            self.runtime = opened.enter_context(
                _bind(ports.runtime, "the SageMaker Runtime", "runtime-port")
            )
            self.dynamodb = opened.enter_context(_bind(ports.dynamodb, "DynamoDB", "dynamodb-port"))
            self._opened = opened.pop_all()

    def __enter__(self) -> "Listeners":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def hand_over_container(self) -> int:
        """The container's port, free for the child that is to listen there."""
        port: int = self.container.getsockname()[1]
        self.container.close()
        return port


def url_of(listener: socket.socket) -> str:
    """The base URL of what listens there."""
    return f"http://{HOST}:{listener.getsockname()[1]}"


def _bind(port: int, use: str, option: str) -> socket.socket:
    try:
        return socket.create_server((HOST, port), backlog=128)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalStackError(
            f"port {port}, for {use}, cannot be used ({reason}); choose another with --{option}"
        ) from None
