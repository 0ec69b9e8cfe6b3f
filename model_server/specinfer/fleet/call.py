"""One HTTP request and the parts of its answer, as values that travel between processes."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

Headers = tuple[tuple[bytes, bytes], ...]
PREFIX = 1024  # characters of a prompt that decide where its pages are


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP request, its body read."""

    method: str
    path: str
    query: bytes = b""
    headers: Headers = ()
    body: bytes = b""

    @property
    def affinity(self) -> str:
        """A name for the beginning of the prompt: calls that share it share pages of the cache."""
        try:
            document = json.loads(self.body)
        except ValueError:
            document = None
        text = _prompt(document) if isinstance(document, dict) else ""
        return hashlib.blake2b(text[:PREFIX].encode(), digest_size=8).hexdigest() if text else ""


@dataclass(frozen=True, slots=True)
class Head:
    """How an answer begins; its body follows in pieces."""

    status: int
    headers: Headers

    def header(self, name: bytes) -> str:
        return next((value.decode() for key, value in self.headers if key.lower() == name), "")

    @property
    def streams(self) -> bool:
        """Whether the body is told as it comes, so that no second replica can begin it anew."""
        kind = self.header(b"content-type")
        return kind.startswith(("text/event-stream", "application/jsonlines"))


Part = Head | bytes


def _prompt(document: dict[str, Any]) -> str:
    """The system's and the user's first words stay while a conversation grows."""
    messages = document.get("messages")
    if isinstance(messages, list):
        contents = [m.get("content") for m in messages if isinstance(m, dict)]
        return "\n".join(str(content) for content in contents)
    return str(document.get("prompt") or document.get("inputs") or "")
