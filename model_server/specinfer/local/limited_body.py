"""A request's body, read no further than a limit."""

from starlette.requests import Request


class BodyTooLargeError(Exception):
    """The body has more bytes than the service takes."""


async def limited_body(request: Request, limit: int) -> bytes:
    """The whole body; raises BodyTooLargeError as soon as it is known to exceed `limit` bytes."""
    if int(request.headers.get("content-length", 0)) > limit:
        raise BodyTooLargeError
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLargeError
        chunks.append(chunk)
    return b"".join(chunks)
