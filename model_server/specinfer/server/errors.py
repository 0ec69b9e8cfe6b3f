"""What the server refuses: a fault of the set-up, or one request's error with its HTTP status."""

from specinfer.errors import SpecInferError


class SettingsError(SpecInferError):
    """A setting is unknown, unreadable or out of range."""


class RequestError(SpecInferError):
    """A request that gets an error document: status, machine-readable code, offending field."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.retry_after = retry_after  # seconds


class ClientGoneError(SpecInferError):
    """The caller closed the connection before its answer was ready."""
