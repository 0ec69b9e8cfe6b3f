"""The OpenAPI 3.1 document: the routes, their bodies with bounds, their errors."""

from typing import Any

from pydantic.json_schema import models_json_schema

from specinfer_gateway.dialects import DIALECTS, Dialect, Document

PROBLEM = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
TGI_PROBLEM = {
    "type": "object",
    "required": ["error", "error_type", "code"],
    "properties": {
        "error": {"type": "string"},
        "error_type": {"enum": ["validation", "generation", "overloaded"]},
        "code": {"type": "string"},
        "param": {"type": ["string", "null"]},
    },
}
JOB = {
    "type": "object",
    "required": ["id", "object", "status", "created", "expires"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "job"},
        "status": {"enum": ["queued", "running", "succeeded", "failed", "cancelled"]},
        "created": {"type": "integer"},
        "expires": {"type": "integer"},
        "result": {"type": "object"},
        "error": {"type": "object"},
    },
}
ERRORS = {
    400: "a field of the body is wrong; `param` names it",
    401: "no valid API key",
    413: "the body is too large",
    429: "too many requests; see Retry-After",
    500: "a fault of the gateway",
    502: "the model failed",
    503: "the model is not ready; see Retry-After",
    504: "no answer in time",
}
CACHE = {"X-Cache": {"schema": {"enum": ["HIT", "MISS", "BYPASS"]}}}


def document() -> Document:
    """Return the whole document."""
    template = "#/components/schemas/{model}"
    models = [(dialect.request, "validation") for dialect in DIALECTS]
    _, schemas = models_json_schema(models, ref_template=template)  # type: ignore[arg-type]
    components = {
        "schemas": schemas["$defs"] | {"Problem": PROBLEM, "TgiProblem": TGI_PROBLEM, "Job": JOB},
        "securitySchemes": {
            "ApiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            "Bearer": {"type": "http", "scheme": "bearer"},
        },
    }
    generations = {dialect.route: {"post": _generation(dialect)} for dialect in DIALECTS}
    return {
        "openapi": "3.1.0",
        "info": {"title": "SpecInfer gateway", "version": "1"},
        "security": [{"ApiKey": []}, {"Bearer": []}],
        "paths": generations | _others(),
        "components": components,
    }


def _generation(dialect: Dialect) -> Document:
    problem = "TgiProblem" if dialect.invalid == 422 else "Problem"
    errors = ERRORS | ({422: ERRORS[400]} if dialect.invalid == 422 else {})
    success = _reply("the answer, and the figures of its speculation", {"type": "object"})
    return {
        "operationId": dialect.name,
        "requestBody": _body(_ref(dialect.request.__name__)),
        "responses": {"200": success | {"headers": CACHE}} | _errors(errors, problem),
    }


def _others() -> Document:
    some = {status: text for status, text in ERRORS.items() if status in (401, 500, 503)}
    job_id = {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string"}}
    missing = _errors(some | {404: "there is no such job"})
    any_body = _body({"anyOf": [_ref(dialect.request.__name__) for dialect in DIALECTS]})
    plain = {"type": "object"}
    return {
        "/v1/models": _get("models", "the one model", plain, some),
        "/health": _get("health", "the gateway runs", plain, {}, public=True),
        "/openapi.json": _get("openapi", "this document", plain, {}, public=True),
        "/v1/jobs": {
            "post": {
                "operationId": "beginJob",
                "requestBody": any_body,
                "responses": {"202": _reply("queued", _ref("Job"))}
                | _errors(ERRORS | {409: "Idempotency-Key was used with another body"}),
            }
        },
        "/v1/jobs/{job_id}": {
            "parameters": [job_id],
            "get": {
                "operationId": "showJob",
                "responses": {"200": _reply("the job", _ref("Job"))}
                | missing
                | _errors({410: "the result has expired"}),
            },
            "delete": {
                "operationId": "cancelJob",
                "responses": {"204": {"description": "cancelled, its data deleted"}} | missing,
            },
        },
    }


def _get(
    name: str, text: str, schema: Document, errors: dict[int, str], *, public: bool = False
) -> Document:
    operation: Document = {"operationId": name, "responses": {"200": _reply(text, schema)}}
    operation["responses"] |= _errors(errors)
    return {"get": operation | ({"security": []} if public else {})}


def _errors(texts: dict[int, str], schema: str = "Problem") -> Document:
    return {str(status): _reply(text, _ref(schema)) for status, text in texts.items()}


def _reply(text: str, schema: Document) -> Document:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _body(schema: Document) -> Document:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
