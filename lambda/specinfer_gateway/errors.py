"""What the gateway refuses or cannot do, and the two error documents that clients understand."""

from typing import Any

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class SettingsError(Exception):
    """The function's environment is incomplete, unknown or out of range."""


class GatewayError(Exception):
    """A request that ends in an error document: HTTP status, machine-readable code, cause."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after  # seconds

    def headers(self) -> dict[str, str]:
        """Return the headers that belong to this error."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def openai_error(error: GatewayError) -> dict[str, Any]:
    """Return the document that OpenAI's clients read."""
    default = "invalid_request_error" if error.status < 500 else "server_error"
    kind = TYPES.get(error.status, default)
    detail = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return {"error": detail}


def tgi_error(error: GatewayError) -> dict[str, Any]:
    """Return the document that text-generation-inference's clients read."""
    kind = "validation" if error.status < 500 else "generation"
    if error.retry_after is not None:
        kind = "overloaded"
    return {
        "error": error.message,
        "error_type": kind,
        "code": error.code,
        "param": error.param,
    }
