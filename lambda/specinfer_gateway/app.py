"""The routes of the REST API, as API Gateway's proxy events reach them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, CORSConfig, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from specinfer_gateway.admission import Admission
from specinfer_gateway.body import read_body
from specinfer_gateway.deadline import Clock, Deadline
from specinfer_gateway.dialects import DIALECTS, Dialect
from specinfer_gateway.errors import GatewayError, openai_error
from specinfer_gateway.flight import encode
from specinfer_gateway.service import Service, Wish
from specinfer_gateway.settings import Settings

JSON = "application/json"
EXPOSED = ["X-Cache", "X-Request-Id", "Retry-After"]
RESERVE_SECONDS = 1.0  # for telling of a failure


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything a request needs."""

    settings: Settings
    admission: Admission
    service: Service
    clock: Clock


Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def build_app(gateway: Gateway) -> Handler:
    """Return the Lambda handler."""
    cors = CORSConfig(
        allow_origin=gateway.settings.cors_origin,
        allow_headers=["X-Api-Key", "Cache-Control", "Idempotency-Key"],
        expose_headers=EXPOSED,
        max_age=600,
    )
    app = APIGatewayRestResolver(cors=cors)
    for dialect in DIALECTS:
        app.post(dialect.route, compress=True)(_generation(app, gateway, dialect))

    @app.get("/health")
    def health() -> Response[str]:
        return _json(200, {"status": "ok"})

    @app.not_found
    def not_found(_: NotFoundError) -> Response[str]:
        message = f"{app.current_event.http_method} {app.current_event.path} is not a route"
        return _problem(GatewayError(404, "not_found", message), openai_error)

    return app.resolve


def _generation(
    app: APIGatewayRestResolver, gateway: Gateway, dialect: Dialect
) -> Callable[[], Response[str]]:
    def generation() -> Response[str]:
        try:
            return _generate(gateway, dialect, app.current_event.raw_event, app.lambda_context)
        except GatewayError as error:
            return _problem(error, dialect.problem)

    return generation


def _generate(
    gateway: Gateway, dialect: Dialect, event: Mapping[str, Any], context: Any
) -> Response[str]:
    deadline = _deadline(gateway, context)
    body = read_body(event, gateway.settings.max_body_bytes)
    request = gateway.admission.admit(dialect, body)
    if request.stream:
        message = "stream: not available on this route; ask without it"
        raise GatewayError(400, "stream_unavailable", message, param="stream")
    answer = gateway.service.answer(request, _wish(event), deadline)
    headers: dict[str, str | list[str]] = {"X-Cache": answer.cache}
    return Response(200, JSON, answer.body.decode(), headers)


def _deadline(gateway: Gateway, context: Any) -> Deadline:
    remaining = context.get_remaining_time_in_millis() / 1000 - RESERVE_SECONDS
    return Deadline.after(min(remaining, gateway.settings.deadline_seconds), gateway.clock)


def _wish(event: Mapping[str, Any]) -> Wish:
    headers = event.get("headers") or {}
    text = next((v for k, v in headers.items() if k.lower() == "cache-control"), "") or ""
    words = {word.strip().lower() for word in text.split(",")}
    return Wish(read=not words & {"no-cache", "no-store"}, write="no-store" not in words)


def _json(status: int, document: dict[str, Any]) -> Response[str]:
    return Response(status, JSON, encode(document).decode())


def _problem(error: GatewayError, tell: Callable[[GatewayError], dict[str, Any]]) -> Response[str]:
    headers: dict[str, str | list[str]] = dict(error.headers())
    return Response(error.status, JSON, encode(tell(error)).decode(), headers)
