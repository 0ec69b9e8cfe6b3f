"""What surrounds every request: its id, one log line, its figures, and no exception gets out."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from specinfer_gateway.call import Gateway
from specinfer_gateway.errors import GatewayError, openai_error
from specinfer_gateway.flight import encode
from specinfer_gateway.meter import EmfMeter

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


class Log(Protocol):
    """The part of a structured logger that is used."""

    def info(self, msg: object, /, *, extra: Mapping[str, object]) -> None: ...

    def error(self, msg: object, /, *, extra: Mapping[str, object]) -> None: ...


@dataclass(frozen=True, slots=True)
class Shield:
    """Wraps a handler.  Logs hold ids, sizes and times; never a body, a header or a key."""

    handler: Handler
    gateway: Gateway
    log: Log
    meter: EmfMeter
    clock: Callable[[], float] = time.monotonic

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        if "Records" in event:
            return self._settle(event)
        started = self.clock()
        request_id = _request_id(event, context)
        try:
            response = self.handler(event, context)
        except Exception as error:
            response = self._internal(error, request_id)
        response.setdefault("multiValueHeaders", {})["X-Request-Id"] = [request_id]
        self._report(event, response, request_id, (self.clock() - started) * 1000)
        return response

    def _settle(self, event: dict[str, Any]) -> dict[str, Any]:
        """Take SNS's notifications; an exception makes Lambda try again."""
        for record in event["Records"]:
            if self.gateway.jobs is not None:
                self.gateway.jobs.settle(json.loads(record["Sns"]["Message"]))
        self.log.info("notifications", extra={"count": len(event["Records"])})
        return {}

    def _internal(self, error: Exception, request_id: str) -> dict[str, Any]:
        # The exception's text may quote the prompt; its type and place cannot.
        place = error.__traceback__
        while place and place.tb_next:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_name}:{place.tb_lineno}" if place else ""
        fault = {"request_id": request_id, "fault": type(error).__name__, "where": where}
        self.log.error("request failed", extra=fault)
        document = openai_error(GatewayError(500, "internal", "the gateway failed"))
        headers = {
            "Content-Type": ["application/json"],
            "Access-Control-Allow-Origin": [self.gateway.settings.cors_origin],
        }
        return {
            "statusCode": 500,
            "multiValueHeaders": headers,
            "body": encode(document).decode(),
            "isBase64Encoded": False,
        }

    def _report(
        self, event: dict[str, Any], response: dict[str, Any], request_id: str, ms: float
    ) -> None:
        status = response["statusCode"]
        route = str(event.get("resource") or event.get("path") or "unknown")[:80]
        self.meter.add("TotalLatency", ms, "Milliseconds")
        if status >= 400:
            self.meter.add("ClientErrors" if status < 500 else "ServerErrors")
        self.meter.flush(route)
        cache = response["multiValueHeaders"].get("X-Cache", [""])[0]
        facts = {"request_id": request_id, "route": route, "status": status}
        self.log.info("request", extra=facts | {"cache": cache, "ms": round(ms, 1)})


def _request_id(event: dict[str, Any], context: Any) -> str:
    gateway = (event.get("requestContext") or {}).get("requestId")
    return str(gateway or getattr(context, "aws_request_id", ""))
