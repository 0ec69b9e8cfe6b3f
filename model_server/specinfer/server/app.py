"""The routes of the container: SageMaker's contract and the paths other clients know.

https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from specinfer.server.dialects.common import Dialect, Work
from specinfer.server.dialects.dispatch import CHAT, COMPLETIONS, TGI, dialect_of, parse_body
from specinfer.server.errors import ClientGoneError, RequestError
from specinfer.server.http import (
    GenerationStream,
    InflightLimit,
    json_response,
    problem_response,
    read_body,
    while_connected,
)
from specinfer.server.service import Service
from specinfer.server.sse import Framing

PING_STATUS = {"ready": 200, "loading": 503, "failed": 500}
CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody is left to read it

log = logging.getLogger(__name__)


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
    return app


def _health(service: Service) -> APIRouter:
    router = APIRouter()

    @router.api_route("/ping", methods=["GET", "POST"])
    async def ping() -> Response:
        return Response(status_code=PING_STATUS[service.backend.state])

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

    return router


def _inference(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/invocations")
    async def invocations(request: Request) -> Response:
        return await _answer(service, request)

    @router.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await _answer(service, request, CHAT)

    @router.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _answer(service, request, COMPLETIONS)

    @router.post("/generate")
    async def generate(request: Request) -> Response:
        return await _answer(service, request, TGI, stream=False)

    @router.post("/generate_stream")
    async def generate_stream(request: Request) -> Response:
        return await _answer(service, request, TGI, stream=True)

    return router


async def _answer(
    service: Service,
    request: Request,
    dialect: Dialect | None = None,
    stream: bool | None = None,
) -> Response:
    """Answer one body in its dialect, errors included."""
    spoken: Dialect = dialect or CHAT
    try:
        service.backend.engine()
        raw = parse_body(await read_body(request, service.settings.max_body_bytes))
        spoken = dialect or dialect_of(raw)
        work = spoken.read(raw, service.desk)
        if stream is not None:
            work = replace(work, stream=stream)
        return await _told(service, request, work, spoken)
    except RequestError as error:
        return problem_response(error, spoken)
    except ClientGoneError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except Exception:  # the caller learns nothing of it but the status
        log.exception("unexpected failure")
        fault = RequestError(500, "internal_error", "the server failed on this request")
        return problem_response(fault, spoken)


async def _told(service: Service, request: Request, work: Work, dialect: Dialect) -> Response:
    settings = service.settings
    if not work.stream:
        answering = service.whole(work, dialect, settings.deadline_s)
        return json_response(200, await while_connected(request, answering))
    framing = Framing.wanted_by(request.headers.get("accept", ""))
    beginning = service.begin(work, dialect, settings.stream_deadline_s)
    generation = await while_connected(request, beginning)
    events = service.events(generation, work, dialect, framing)
    return GenerationStream(generation, events, framing.media_type)


async def _http_error(_: Request, error: Exception) -> Response:
    """Write the framework's own refusals (no such path, wrong method) as error documents."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    problem = RequestError(error.status_code, code, str(error.detail))
    response = problem_response(problem)
    response.headers.update(error.headers or {})
    return response
