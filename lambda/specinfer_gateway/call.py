"""One API Gateway proxy event, read: headers whatever their case, the caller, the deadline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specinfer_gateway.admission import Admission, Request
from specinfer_gateway.api_keys import ApiKeys
from specinfer_gateway.body import read_body
from specinfer_gateway.deadline import Clock, Deadline
from specinfer_gateway.dialects import Dialect, Document
from specinfer_gateway.jobs import Jobs
from specinfer_gateway.service import Service, Wish
from specinfer_gateway.settings import Settings

RESERVE_SECONDS = 1.0  # for telling of a failure before Lambda cuts the function
Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything a request needs; keys is None when API Gateway alone checks them."""

    settings: Settings
    admission: Admission
    service: Service
    keys: ApiKeys | None
    jobs: Jobs | None
    clock: Clock


@dataclass(frozen=True, slots=True)
class Call:
    """What a route works on."""

    gateway: Gateway
    event: Event
    headers: Mapping[str, str]  # lower-case names
    owner: str  # name of the API key, empty if none is checked here
    deadline: Deadline

    def body(self) -> Document:
        """Return the body's JSON object; raises GatewayError."""
        return read_body(self.event, self.gateway.settings.max_body_bytes)

    def request(self, dialect: Dialect) -> Request:
        """Return the checked request; raises GatewayError."""
        return self.gateway.admission.admit(dialect, self.body())

    @property
    def wish(self) -> Wish:
        """What the caller wants of the cache."""
        words = {w.strip().lower() for w in self.headers.get("cache-control", "").split(",")}
        return Wish(read=not words & {"no-cache", "no-store"}, write="no-store" not in words)


def read_call(gateway: Gateway, event: Event, context: Any, limit_seconds: float) -> Call:
    """Read an event; raises GatewayError 401 if the caller has no valid key."""
    headers = read_headers(event)
    remaining = context.get_remaining_time_in_millis() / 1000 - RESERVE_SECONDS
    deadline = Deadline.after(min(remaining, limit_seconds), gateway.clock)
    owner = gateway.keys.owner(headers) if gateway.keys else ""
    return Call(gateway, event, headers, owner, deadline)


def read_headers(event: Event) -> dict[str, str]:
    """Return the headers under lower-case names, repeated ones joined by a comma."""
    repeated = event.get("multiValueHeaders") or {}
    single = event.get("headers") or {}
    joined = {name.lower(): value for name, value in single.items() if value is not None}
    return joined | {name.lower(): ", ".join(values) for name, values in repeated.items() if values}
