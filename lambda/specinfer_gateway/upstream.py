"""SageMaker Runtime's failures, told as the HTTP errors they really are.

Throttling and "no capacity" both arrive as HTTP 400, the container's own 4xx inside a 424, and
ModelError's message holds the account's log address: none of that may reach a caller.
https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_runtime_InvokeEndpoint.html
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError
from urllib3.exceptions import HTTPError

from specinfer_gateway.deadline import DeadlineError
from specinfer_gateway.errors import GatewayError

NOT_READY = "the model is still loading"
UNAVAILABLE = "the endpoint is not available"
FAILED = "the model failed to answer"
PRIVATE = re.compile(r"arn:[\w-]+:\S+|https?://\S+|\b\d{12}\b")
MAX_MESSAGE = 500  # characters

TIMED_OUT = (DeadlineError, ReadTimeoutError)


def explain(error: Exception) -> GatewayError:
    """Return the error to answer with."""
    if isinstance(error, TIMED_OUT):
        return GatewayError(504, "timeout", "the model did not answer in time")
    if isinstance(error, ClientError):
        return _explain_service(error)
    if isinstance(error, BotoCoreError):
        return GatewayError(503, "endpoint_unavailable", UNAVAILABLE, retry_after=5)
    if isinstance(error, HTTPError):  # urllib3's: a connection that broke within an answer
        return broken()
    raise error


def _explain_service(error: ClientError) -> GatewayError:
    response: Mapping[str, Any] = error.response
    detail = response.get("Error") or {}
    code, message = str(detail.get("Code") or ""), str(detail.get("Message") or "")
    if code == "ModelError":
        return _explain_model(response)
    if code == "ModelStreamError":
        # botocore keeps the message and drops ErrorCode, which would tell the two apart.
        late = "timed out" in message
        return explain(DeadlineError()) if late else broken()
    if code in ("ValidationError", "ValidationException"):
        return _explain_validation(message)
    return SERVICE.get(code, _internal)()


def _explain_model(response: Mapping[str, Any]) -> GatewayError:
    status = int(response.get("OriginalStatusCode") or 0)
    if not 400 <= status < 500:
        return GatewayError(502, "model_error", FAILED)
    message, code, param = own_words(str(response.get("OriginalMessage") or ""))
    retry_after = 1 if status == 429 else None
    return GatewayError(status, code, message, param=param, retry_after=retry_after)


def _explain_validation(message: str) -> GatewayError:
    if "no capacity" in message:
        text = "the endpoint is scaling up from zero"
        return GatewayError(503, "scaling_from_zero", text, retry_after=120)
    if "not found" in message or "not in service" in message:
        return GatewayError(503, "endpoint_unavailable", UNAVAILABLE, retry_after=30)
    return _internal()


def own_words(original: str) -> tuple[str, str, str | None]:
    """Return message, code and parameter of the container's error document."""
    try:
        document = json.loads(original)
    except ValueError:
        document = None
    detail = document if isinstance(document, dict) else {}
    if isinstance(detail.get("error"), dict):
        detail = detail["error"]
    message = detail.get("message") or detail.get("error")
    if not isinstance(message, str):
        return "the model refused the request", "model_refused", None
    code, param = detail.get("code"), detail.get("param")
    return (
        clean(message),
        clean(code) if isinstance(code, str) else "model_refused",
        clean(param) if isinstance(param, str) else None,
    )


def clean(text: str) -> str:
    """Take out addresses, ARNs and account numbers."""
    return PRIVATE.sub("(hidden)", text)[:MAX_MESSAGE]


def _internal() -> GatewayError:
    return GatewayError(500, "internal", "the gateway could not call the model")


def _throttled() -> GatewayError:
    return GatewayError(429, "rate_limit_exceeded", "too many requests", retry_after=1)


def _not_ready() -> GatewayError:
    return GatewayError(503, "model_not_ready", NOT_READY, retry_after=5)


def _unavailable() -> GatewayError:
    return GatewayError(503, "upstream_unavailable", UNAVAILABLE, retry_after=5)


def broken() -> GatewayError:
    """Return the error of an answer that stops before its end."""
    return GatewayError(502, "stream_broken", "the model's answer broke off")


def _upstream() -> GatewayError:
    return GatewayError(502, "upstream_error", FAILED)


SERVICE = {
    "ModelNotReadyException": _not_ready,
    "InternalStreamFailure": broken,
    "ThrottlingException": _throttled,
    "TooManyRequestsException": _throttled,
    "ServiceUnavailable": _unavailable,
    "ServiceUnavailableException": _unavailable,
    "InternalFailure": _upstream,
    "InternalServerException": _upstream,
    "InternalDependencyException": _upstream,
}
