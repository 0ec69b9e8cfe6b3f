"""The routes of the container: SageMaker's contract and the paths other clients know.

https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from specinfer.server.attributes import HEADER, read_attributes, traceparent_of, write_attributes
from specinfer.server.batch import MEDIA_TYPES, Batch, is_batch
from specinfer.server.dialects.dispatch import CHAT, COMPLETIONS, TGI
from specinfer.server.errors import ClientGoneError, RequestError
from specinfer.server.http import (
    ClosedStream,
    InflightLimit,
    json_response,
    problem_response,
    read_body,
    while_connected,
)
from specinfer.server.openapi import describe
from specinfer.server.report import Caller
from specinfer.server.service import Entry, Exchange, RefusedError, Service
from specinfer.server.sse import Framing

PING_STATUS = {"ready": 200, "loading": 503, "failed": 500}
CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody is left to read it
ENTRIES = {
    "/v1/chat/completions": Entry(CHAT),
    "/v1/completions": Entry(COMPLETIONS),
    "/generate": Entry(TGI, stream=False),
    "/generate_stream": Entry(TGI, stream=True),
}


def create_app(service: Service) -> FastAPI:
    """Build the ASGI application; its start begins to load the engine, its end closes it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.backend.start()
        yield
        service.backend.close()

    app = FastAPI(title="SpecInfer model server", lifespan=lifespan, redoc_url=None, docs_url=None)
    app.include_router(_health(service))
    app.include_router(_inference(service))
    app.add_middleware(InflightLimit, limit=service.settings.max_inflight)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    describe(app)
    return app


def _health(service: Service) -> APIRouter:
    router = APIRouter()

    async def ping() -> Response:
        return Response(status_code=PING_STATUS[service.backend.state])

    router.add_api_route("/ping", ping, methods=["GET"], name="ping")
    router.add_api_route("/ping", ping, methods=["POST"], name="ping by POST")

    @router.get("/v1/models")
    async def models() -> Response:
        try:
            engine = service.backend.engine()
        except RequestError as error:
            return problem_response(error)
        entry = {"id": engine.model_id, "object": "model", "owned_by": "specinfer"}
        entry |= {"revision": engine.revision}
        return json_response(200, {"object": "list", "data": [entry]})

    @router.get("/execution-parameters")
    async def execution_parameters() -> Response:
        limits = {
            "MaxConcurrentTransforms": service.settings.max_concurrent_transforms,
            "BatchStrategy": "MULTI_RECORD",
            "MaxPayloadInMB": service.settings.max_payload_mb,
        }
        return json_response(200, limits)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(service.meters.page(), media_type=CONTENT_TYPE_LATEST)

    return router


def _inference(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/invocations")
    async def invocations(request: Request) -> Response:
        if is_batch(request.headers.get("content-type", "")):
            return await _batch(service, request)
        route = _attributes(request).get("route", "")
        return await _answer(service, request, ENTRIES.get(route, Entry()))

    for path, entry in ENTRIES.items():
        router.add_api_route(path, _endpoint(service, entry), methods=["POST"])
    return router


def _endpoint(service: Service, entry: Entry) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await _answer(service, request, entry)

    return endpoint


async def _answer(service: Service, request: Request, entry: Entry) -> Response:
    """Answer one body in its dialect, errors included."""
    caller = _caller(request)
    try:
        body = await _body(service, request, service.settings.max_body_bytes, entry)
        exchange = await service.admit(body, caller, entry)
    except RefusedError as refused:
        return problem_response(refused.error, refused.dialect)
    except ClientGoneError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if exchange.work.stream:
        framing = Framing.wanted_by(request.headers.get("accept", ""))
        return ClosedStream(exchange.events(framing), framing.media_type, exchange.settle)
    return await _whole(request, exchange)


async def _whole(request: Request, exchange: Exchange) -> Response:
    try:
        document, totals = await while_connected(request, exchange.whole())
    except RequestError as error:
        return problem_response(error, exchange.dialect)
    except ClientGoneError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        exchange.settle()
    told = write_attributes(exchange.caller.traceparent, totals)
    return json_response(200, document, {HEADER: told})


async def _batch(service: Service, request: Request) -> Response:
    settings = service.settings
    try:
        body = await _body(service, request, settings.max_payload_mb << 20, Entry())
    except RefusedError as refused:
        return problem_response(refused.error)
    except ClientGoneError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    batch = Batch(service, _caller(request), service.deadlines.begin(settings.batch_deadline_s))
    batch.begin(body)
    return ClosedStream(batch.lines(), MEDIA_TYPES[0], batch.close)


async def _body(service: Service, request: Request, limit: int, entry: Entry) -> bytes:
    """Read the body once there is an engine to answer it; raises RefusedError, ClientGoneError."""
    try:
        service.backend.engine()
        return await read_body(request, limit)
    except RequestError as error:
        raise service.refuse(error, entry.dialect or CHAT) from None


def _attributes(request: Request) -> dict[str, str]:
    return read_attributes(request.headers.get(HEADER, ""))


def _caller(request: Request) -> Caller:
    return Caller(request.url.path, traceparent_of(_attributes(request)))


async def _http_error(_: Request, error: Exception) -> Response:
    """Write the framework's own refusals (no such path, wrong method) as error documents."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    problem = RequestError(error.status_code, code, str(error.detail))
    response = problem_response(problem)
    response.headers.update(error.headers or {})
    return response


async def _unexpected(_: Request, error: Exception) -> Response:
    """Tell the caller nothing but the status; uvicorn logs the rest."""
    fault = RequestError(500, "internal_error", "the server failed on this request")
    return problem_response(fault)
