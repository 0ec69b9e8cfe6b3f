"""Subsegments sent to the X-Ray daemon that Lambda runs beside a function.

The daemon's protocol is one UDP datagram a subsegment, so aws-xray-sdk, in maintenance since
February 2026 and 280 ms of import, is not needed.
https://docs.aws.amazon.com/xray/latest/devguide/xray-api-sendingdata.html#xray-api-daemon
"""

import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

HEADER = b'{"format": "json", "version": 1}\n'
TRACE_VARIABLE = "_X_AMZN_TRACE_ID"  # set by the runtime for every event


@dataclass(frozen=True, slots=True)
class XRayTracer:
    """Sections of one request at a time; trace tells the current X-Amzn-Trace-Id."""

    send: Callable[[bytes], None]
    trace: Callable[[], str]
    now: Callable[[], float] = time.time
    _open: list[str] = field(default_factory=list)

    @property
    def traceparent(self) -> str:
        """The open section in W3C's words: X-Ray's 1-time-random is one number of 32 digits."""
        trace = self._parts()
        version, _, root = trace.get("Root", "").partition("-")
        if version != "1" or not self._open:
            return ""
        sampled = "01" if trace.get("Sampled") == "1" else "00"
        return f"00-{root.replace('-', '')}-{self._open[-1]}-{sampled}"

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Time a block; an exception marks it as failed and passes on."""
        start, own_id = self.now(), _new_id()
        self._open.append(own_id)
        fault = True
        try:
            yield
            fault = False
        finally:
            self._open.pop()
            self._emit(name, own_id, start, self.now(), fault)

    def past_section(self, name: str, start: float, end: float) -> None:
        """Report a section of the block that is open now."""
        self._emit(name, _new_id(), start, end, fault=False)

    def _emit(self, name: str, own_id: str, start: float, end: float, fault: bool) -> None:
        trace = self._parts()
        if trace.get("Sampled") != "1":
            return
        parent = self._open[-1] if self._open else trace.get("Parent")
        segment: dict[str, Any] = {
            "type": "subsegment",
            "name": name,
            "id": own_id,
            "trace_id": trace.get("Root"),
            "parent_id": parent,
            "start_time": start,
            "end_time": end,
        }
        self.send(HEADER + json.dumps(segment | ({"fault": True} if fault else {})).encode())

    def _parts(self) -> dict[str, str]:
        return dict(part.partition("=")[::2] for part in self.trace().split(";"))


def daemon(environment: Mapping[str, str]) -> Callable[[bytes], None] | None:
    """Return what sends to the daemon, None where there is none; a lost datagram is no error."""
    address = environment.get("AWS_XRAY_DAEMON_ADDRESS", "")
    host, _, port = address.removeprefix("udp:").rpartition(":")
    if not host or not port.isdigit():
        return None

    def send(datagram: bytes) -> None:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(datagram, (host, int(port)))

    return send


def _new_id() -> str:
    return secrets.token_hex(8)
