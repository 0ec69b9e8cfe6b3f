"""One log line and one set of figures per request, none of which holds a body, header or key."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from specinfer_gateway.errors import GatewayError
from specinfer_gateway.telemetry import Meter


class Log(Protocol):
    """The part of a structured logger that is used."""

    def info(self, msg: object, /, *, extra: Mapping[str, object]) -> None: ...

    def error(self, msg: object, /, *, extra: Mapping[str, object]) -> None: ...


class FlushingMeter(Meter, Protocol):
    """A meter whose figures are written at the end of a request."""

    def flush(self, route: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Report:
    """What is told of one request."""

    log: Log
    meter: FlushingMeter
    clock: Callable[[], float]
    started: float
    request_id: str
    route: str

    def ended(self, status: int, cache: str) -> None:
        """Write the line and the figures."""
        ms = (self.clock() - self.started) * 1000
        self.meter.add("TotalLatency", ms, "Milliseconds")
        if status >= 400:
            self.meter.add("ClientErrors" if status < 500 else "ServerErrors")
        self.meter.flush(self.route)
        facts = {"request_id": self.request_id, "route": self.route, "status": status}
        self.log.info("request", extra=facts | {"cache": cache, "ms": round(ms, 1)})

    def followed(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        """Pass a stream on, and report when it ends."""
        try:
            yield from parts
        finally:
            self.ended(200, "BYPASS")


@dataclass(frozen=True, slots=True)
class Reporter:
    """Begins reports."""

    log: Log
    meter: FlushingMeter
    clock: Callable[[], float] = field(default=time.monotonic)

    def begin(self, event: Mapping[str, Any], context: Any) -> Report:
        """Return the report of the request that begins now."""
        route = str(event.get("resource") or event.get("path") or "unknown")[:80]
        request_id = _request_id(event, context)
        return Report(self.log, self.meter, self.clock, self.clock(), request_id, route)

    def fault(self, error: Exception, event: Mapping[str, Any], context: Any) -> GatewayError:
        """Return what a caller may know; the log gets the cause of a fault on our side.

        Its type, place and AWS's code for it, not its text, which may quote the prompt.
        """
        told = error if isinstance(error, GatewayError) else _internal()
        cause = error.__cause__ if isinstance(error, GatewayError) else error
        if cause is not None and told.status >= 500:
            facts = {"fault": type(cause).__name__, "where": _place(cause), "code": told.code}
            response = getattr(cause, "response", None) or {}
            facts["aws"] = str((response.get("Error") or {}).get("Code", ""))
            facts["request_id"] = _request_id(event, context)
            self.log.error("request failed", extra=facts)
        return told


def _internal() -> GatewayError:
    return GatewayError(500, "internal", "the gateway failed")


def _place(error: BaseException) -> str:
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    return f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""


def _request_id(event: Mapping[str, Any], context: Any) -> str:
    gateway = (event.get("requestContext") or {}).get("requestId")
    return str(gateway or getattr(context, "aws_request_id", ""))
