"""The OpenAPI document: what the routes, which read bodies themselves, would not tell FastAPI."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from specinfer import __version__
from specinfer.server.dialects.chat import ChatBody
from specinfer.server.dialects.common import Body, Document
from specinfer.server.dialects.completions import CompletionBody
from specinfer.server.dialects.tgi import TgiBody

BODIES: dict[str, tuple[type[Body], ...]] = {
    "/invocations": (ChatBody, CompletionBody, TgiBody),
    "/v1/chat/completions": (ChatBody,),
    "/v1/completions": (CompletionBody,),
    "/generate": (TgiBody,),
    "/generate_stream": (TgiBody,),
}
REFUSALS = {
    400: "The body is not JSON, or an OpenAI body is wrong: `error.param` names the field.",
    413: "The body is too large.",
    422: "A TGI body is wrong: `param` names the field.",
    429: "Too many requests; see Retry-After.",
    500: "The engine has failed.",
    503: "The model is loading, or the deadline passed before the first token.",
}


def describe(app: FastAPI) -> None:
    """Make app serve the document."""

    def document() -> Document:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way


def _document(app: FastAPI) -> Document:
    document = get_openapi(title=app.title, version=__version__, routes=app.routes)
    kinds: list[tuple[type[Body], Any]] = [(kind, "validation") for kind in BODIES["/invocations"]]
    _, schemas = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
    document["components"] = {"schemas": schemas["$defs"]}
    for path, bodies in BODIES.items():
        operation = document["paths"][path]["post"]
        operation["requestBody"] = _request_body(bodies)
        operation["responses"] = _responses()
    return document


def _request_body(kinds: Sequence[type[Body]]) -> Document:
    schemas = [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in kinds]
    # A body of two dialects matches neither.
    schema = schemas[0] if len(schemas) == 1 else {"oneOf": schemas}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _responses() -> Document:
    answer: Document = {"application/json": {"schema": {}}, "text/event-stream": {"schema": {}}}
    error = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
    refusals = {
        str(status): {"description": text, "content": error} for status, text in REFUSALS.items()
    }
    return {"200": {"description": "The answer.", "content": answer}} | refusals
