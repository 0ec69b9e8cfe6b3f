"""Streams: the container's server-sent events, passed on whole, their errors told.

API Gateway's STREAM integration takes a status and headers, then bytes:
https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode.html
"""

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from specinfer_gateway.app import TOLD_HEADERS
from specinfer_gateway.call import Gateway, read_call
from specinfer_gateway.dialects import DIALECTS, Dialect
from specinfer_gateway.errors import GatewayError
from specinfer_gateway.report import Reporter
from specinfer_gateway.shield import Handler, proxy_error
from specinfer_gateway.upstream import broken

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Cache": "BYPASS",
    "Access-Control-Expose-Headers": ",".join(TOLD_HEADERS),
}


@dataclass(frozen=True, slots=True)
class Streamed:
    """Status and headers, then the body's parts."""

    metadata: dict[str, Any]
    parts: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class StreamApp:
    """Answers every event as a stream; what asks for none is answered by the buffered handler."""

    gateway: Gateway
    buffered: Handler
    reporter: Reporter

    def __call__(self, event: dict[str, Any], context: Any) -> Streamed:
        """Return the answer, with the model's first event already in hand."""
        dialect = _streaming_dialect(event)
        if dialect is None:
            return _whole(self.buffered(event, context))
        report = self.reporter.begin(event, context)
        origin = self.gateway.settings.cors_origin
        try:
            events = self._begin(dialect, event, context)
        except Exception as error:
            told = self.reporter.fault(error, event, context)
            response = proxy_error(told, dialect.problem, origin)
            report.ended(response["statusCode"], "")
            response["multiValueHeaders"]["X-Request-Id"] = [report.request_id]
            return _whole(response)
        headers = HEADERS | {"X-Request-Id": report.request_id}
        headers["Access-Control-Allow-Origin"] = origin
        metadata = {"statusCode": 200, "headers": headers}
        return Streamed(metadata, report.followed(_told(dialect, events)))

    def _begin(self, dialect: Dialect, event: dict[str, Any], context: Any) -> Iterator[bytes]:
        """Return the model's events once there is one, so that an early failure has its status."""
        limit = self.gateway.settings.stream_deadline_seconds
        call = read_call(self.gateway, event, context, limit)
        request = call.request(dialect)
        events = whole_events(self.gateway.service.stream(request, call.deadline))
        return chain((next(events, b""),), events)


def whole_events(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield complete events only, so that an error never lands inside one; ends with a newline."""
    held = b""
    for part in parts:
        held += part
        complete, separator, held = held.rpartition(b"\n\n")
        if separator:
            yield complete + separator
    if held:
        yield held.rstrip(b"\n") + b"\n\n"


def _told(dialect: Dialect, events: Iterator[bytes]) -> Iterator[bytes]:
    """Pass events on; a failure among them, or an end without the last one, becomes an event."""
    last = b""
    try:
        for last in events:
            yield last
    except GatewayError as error:
        yield _event(dialect, error)
    else:
        if not dialect.ended(last):
            yield _event(dialect, broken())


def _event(dialect: Dialect, error: GatewayError) -> bytes:
    return b"data: " + json.dumps(dialect.problem(error)).encode() + b"\n\n"


def _streaming_dialect(event: dict[str, Any]) -> Dialect | None:
    """Return the dialect of an event that asks for a stream; faulty ones are told buffered."""
    found = {dialect.route: dialect for dialect in DIALECTS}.get(str(event.get("path")).rstrip("/"))
    if found is None or event.get("httpMethod") != "POST" or not event.get("body"):
        return None
    with suppress(ValueError, RecursionError):
        text = event["body"]
        body = json.loads(base64.b64decode(text) if event.get("isBase64Encoded") else text)
        if isinstance(body, dict) and body.get("stream") is True:
            return found
    return None


def _whole(response: dict[str, Any]) -> Streamed:
    """Return a buffered proxy result as a stream of one part."""
    text = response.get("body") or ""
    body = base64.b64decode(text) if response.get("isBase64Encoded") else text.encode()
    kept = ("statusCode", "headers", "multiValueHeaders")
    metadata = {name: response[name] for name in kept if response.get(name)}
    return Streamed(metadata, iter((body,) if body else ()))
