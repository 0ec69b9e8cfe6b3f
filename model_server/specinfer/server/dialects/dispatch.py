"""Which dialect a body speaks, told by which one of three keys it has."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from specinfer.server.dialects.chat import Chat
from specinfer.server.dialects.common import Dialect, Document
from specinfer.server.dialects.completions import Completions
from specinfer.server.dialects.tgi import Tgi
from specinfer.server.errors import RequestError

CHAT, COMPLETIONS, TGI = Chat(), Completions(), Tgi()
DIALECTS: tuple[Dialect, ...] = (CHAT, COMPLETIONS, TGI)


def parse_body(body: bytes) -> Document:
    """Read a JSON object; raises RequestError 400."""
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(
            400, "invalid_json", f"the body is not JSON: {error}", field="body"
        ) from None
    if not isinstance(document, dict):
        kind = type(document).__name__
        raise RequestError(
            400, "invalid_body", f"the body must be a JSON object, not {kind}", field="body"
        )
    return document


def dialect_of(raw: Mapping[str, Any]) -> Dialect:
    """Return the dialect; raises RequestError naming the keys when none or several are there."""
    spoken = [dialect for dialect in DIALECTS if dialect.key in raw]
    if len(spoken) == 1:
        return spoken[0]
    found = " and ".join(dialect.key for dialect in spoken) or "none of them"
    names = ", ".join(dialect.key for dialect in DIALECTS)
    raise RequestError(
        400, "unknown_dialect", f"the body must have one of {names}; it has {found}", field="body"
    )
