"""Taking the port before anything slow is imported, so that a taken one is told at once."""

import socket

from specinfer.server.errors import SettingsError


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises SettingsError."""
    try:
        return socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from None
