"""Run a command in a network of its own, where only loopback exists: `isolated.py COMMAND...`."""

import fcntl
import os
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


def main() -> None:
    os.unshare(CLONE_NEWNET) if hasattr(os, "unshare") else _unshare()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    os.execvp(sys.argv[1], sys.argv[1:])


def _unshare() -> None:
    """os.unshare is there from Python 3.12 on."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")


if __name__ == "__main__":
    main()
