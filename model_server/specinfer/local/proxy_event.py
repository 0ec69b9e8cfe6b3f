"""HTTP <-> API Gateway's REST proxy integration: the event a Lambda gets, the answer it gives.

https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-lambda-proxy-integrations.html
"""

import base64
import binascii
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

STAGE = "local"
API_ID = "specinferlocal"
ACCOUNT = "123456789012"

Pairs = Sequence[tuple[str, str]]


class MalformedAnswerError(Exception):
    """What the handler returned is not a proxy answer."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it arrived. `path` is decoded, `query` is not."""

    method: str
    path: str
    query: str
    headers: Pairs
    body: bytes
    source_ip: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    received_at: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What goes back to the caller."""

    status: int
    headers: Pairs
    body: bytes


def to_event(request: HttpRequest) -> dict[str, Any]:
    """The event of a `{proxy+}` resource behind a custom domain (no stage in the path)."""
    headers = [(_canonical(name), value) for name, value in request.headers]
    headers += [
        ("X-Amzn-Trace-Id", f"Root=1-{int(request.received_at):08x}-{uuid.uuid4().hex[:24]}"),
        ("X-Forwarded-For", request.source_ip),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Port", "443"),
    ]
    query = parse_qsl(request.query, keep_blank_values=True)
    text, encoded = _body(request.body)
    return {
        "resource": "/{proxy+}",
        "path": request.path,
        "httpMethod": request.method,
        # API Gateway keeps the last of repeated names in the single-valued maps.
        "headers": dict(headers),
        "multiValueHeaders": _grouped(headers),
        "queryStringParameters": dict(query) or None,
        "multiValueQueryStringParameters": _grouped(query) or None,
        "pathParameters": {"proxy": request.path.lstrip("/")},
        "stageVariables": None,
        "requestContext": _context(request, dict(headers)),
        "body": text,
        "isBase64Encoded": encoded,
    }


def from_answer(answer: object) -> HttpAnswer:
    """Raises MalformedAnswerError where API Gateway would answer 502."""
    if not isinstance(answer, Mapping) or "statusCode" not in answer:
        raise MalformedAnswerError("no statusCode")
    try:
        status = int(answer["statusCode"])
        headers = _answer_headers(answer)
        body = answer.get("body") or ""
        if answer.get("isBase64Encoded"):
            return HttpAnswer(status, headers, base64.b64decode(body, validate=True))
        return HttpAnswer(status, headers, body.encode())
    except (TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise MalformedAnswerError(str(error)) from error


def _canonical(name: str) -> str:
    """ASGI lowers header names; HTTP/1.1 callers write Content-Type and API Gateway keeps it."""
    return "-".join(part.capitalize() for part in name.split("-"))


def _grouped(pairs: Pairs) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name, value in pairs:
        groups[name].append(value)
    return dict(groups)


def _body(body: bytes) -> tuple[str | None, bool]:
    """Text as it is, anything else in base64; no body is null."""
    if not body:
        return None, False
    try:
        return body.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), True


def _context(request: HttpRequest, headers: Mapping[str, str]) -> dict[str, Any]:
    moment = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(request.received_at))
    domain = headers.get("Host", "localhost")
    return {
        "accountId": ACCOUNT,
        "apiId": API_ID,
        "deploymentId": "local",
        "domainName": domain,
        "domainPrefix": domain.split(".")[0],
        "extendedRequestId": request.id[:15] + "=",
        "httpMethod": request.method,
        "identity": _identity(request, headers),
        "path": request.path,
        "protocol": "HTTP/1.1",
        "requestId": request.id,
        "requestTime": moment,
        "requestTimeEpoch": int(request.received_at * 1000),
        "resourceId": "proxy0",
        "resourcePath": "/{proxy+}",
        "stage": STAGE,
    }


def _identity(request: HttpRequest, headers: Mapping[str, str]) -> dict[str, Any]:
    unknown = (
        *(
            "accessKey",
            "accountId",
            "apiKey",
            "apiKeyId",
            "caller",
            "cognitoAuthenticationProvider",
        ),
        *("cognitoAuthenticationType", "cognitoIdentityId", "cognitoIdentityPoolId"),
        *("principalOrgId", "user", "userArn"),
    )
    known = {"sourceIp": request.source_ip, "userAgent": headers.get("User-Agent")}
    return {**dict.fromkeys(unknown), **known}


def _answer_headers(answer: Mapping[str, Any]) -> Pairs:
    """Both maps merged; a name in both is taken from the multi-valued one."""
    many = answer.get("multiValueHeaders") or {}
    names = {name.lower() for name in many}
    single = answer.get("headers") or {}
    headers = [(k, _text(v)) for k, v in single.items() if k.lower() not in names]
    headers += [(k, _text(v)) for k, values in many.items() for v in values]
    if all(name.lower() != "content-type" for name, _ in headers):
        headers.append(("Content-Type", "application/json"))
    return headers


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"a header may not be a {type(value).__name__}")
