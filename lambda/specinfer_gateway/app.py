"""The routes of the REST API, as API Gateway's proxy events reach them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayRestResolver, CORSConfig, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

from specinfer_gateway.call import Call, Event, Gateway, read_call
from specinfer_gateway.dialects import DIALECTS, Dialect, Document
from specinfer_gateway.errors import GatewayError, openai_error
from specinfer_gateway.flight import encode
from specinfer_gateway.jobs import Jobs, describe

JSON = "application/json"
ASKED_HEADERS = ["X-Api-Key", "Cache-Control", "Idempotency-Key"]
TOLD_HEADERS = ["X-Cache", "X-Request-Id", "Retry-After", "Location"]

Work = Callable[[Call], Response[str]]
Handler = Callable[[dict[str, Any], Any], dict[str, Any]]
Problem = Callable[[GatewayError], Document]
Fault = Callable[[Exception, Event, Any], GatewayError]


def build_app(gateway: Gateway, fault: Fault) -> Handler:
    """Return the handler of buffered requests; fault tells what of an error a caller may know."""
    origin = gateway.settings.cors_origin
    cors = CORSConfig(origin, allow_headers=ASKED_HEADERS, expose_headers=TOLD_HEADERS, max_age=600)
    app = APIGatewayRestResolver(cors=cors)

    def route(work: Work, problem: Problem = openai_error) -> Callable[..., Response[str]]:
        return _Route(app, gateway, fault, work, problem).run

    for dialect in DIALECTS:
        app.post(dialect.route)(route(_generation(dialect), dialect.problem))
    app.get("/v1/models")(route(_models))
    app.post("/v1/jobs")(route(_begin_job))
    app.get("/v1/jobs/<job_id>")(route(_show_job))
    app.delete("/v1/jobs/<job_id>")(route(_cancel_job))
    app.get("/health")(lambda: answer(200, {"status": "ok"}))
    app.get("/openapi.json")(_openapi)

    @app.not_found
    def not_found(_: NotFoundError) -> Response[str]:
        message = f"{app.current_event.http_method} {app.current_event.path} is not a route"
        return refusal(GatewayError(404, "not_found", message), openai_error)

    return app.resolve


@dataclass(frozen=True, slots=True)
class _Route:
    """Runs one route's work on the current event, for callers with a key."""

    app: APIGatewayRestResolver
    gateway: Gateway
    fault: Fault
    work: Work
    problem: Problem

    def run(self, **_: str) -> Response[str]:
        """Answer; path parameters are read from the event.

        No exception may reach the resolver, which would log its text.
        """
        event, context = self.app.current_event.raw_event, self.app.lambda_context
        try:
            limit = self.gateway.settings.deadline_seconds
            return self.work(read_call(self.gateway, event, context, limit))
        except Exception as error:
            return refusal(self.fault(error, event, context), self.problem)


def _generation(dialect: Dialect) -> Work:
    def generation(call: Call) -> Response[str]:
        request = call.request(dialect)
        if request.stream:
            message = "stream: not available on this route; ask without it"
            raise GatewayError(400, "stream_unavailable", message, param="stream")
        found = call.gateway.service.answer(request, call.wish, call.deadline)
        headers: dict[str, str | list[str]] = {"X-Cache": found.cache}
        return Response(200, JSON, found.body.decode(), headers)

    return generation


def _models(call: Call) -> Response[str]:
    settings = call.gateway.settings
    model = {"id": settings.model_id, "object": "model", "created": 0, "owned_by": "specinfer"}
    model["revision"] = settings.model_revision
    return answer(200, {"object": "list", "data": [model]})


def _begin_job(call: Call) -> Response[str]:
    jobs = _jobs(call)
    once = call.headers.get("idempotency-key", "")
    job = jobs.begin(call.gateway.admission, call.body(), call.owner, once)
    return answer(202, describe(job, None), {"Location": f"/v1/jobs/{job.job_id}"})


def _show_job(call: Call) -> Response[str]:
    return answer(200, describe(*_jobs(call).show(_job_id(call), call.owner)))


def _cancel_job(call: Call) -> Response[str]:
    _jobs(call).cancel(_job_id(call), call.owner)
    return Response(204, None, None)


def _jobs(call: Call) -> Jobs:
    if call.gateway.jobs is None:
        raise GatewayError(404, "jobs_disabled", "this deployment has no asynchronous endpoint")
    return call.gateway.jobs


def _job_id(call: Call) -> str:
    return str(call.event["path"]).rstrip("/").rpartition("/")[2]


def _openapi() -> Response[str]:
    # Imported late: the document needs every schema, a request needs none of it.
    from specinfer_gateway.openapi import document

    return answer(200, document())


def answer(status: int, document: Document, headers: dict[str, str] | None = None) -> Response[str]:
    """Return a JSON response."""
    return Response(status, JSON, encode(document).decode(), {**(headers or {})})


def refusal(error: GatewayError, problem: Problem) -> Response[str]:
    """Return an error's response."""
    return answer(error.status, problem(error), error.headers())
