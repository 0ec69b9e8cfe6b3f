"""Framing of a stream: server-sent events or JSON lines, ASCII only, closed by a newline.

Every byte is ASCII because SageMaker cuts a stream into payload parts at any byte, and some
clients decode each part alone.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal


def ascii_json(document: object) -> str:
    """Return compact JSON without a byte outside ASCII."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Framing:
    """How one event of a stream is written."""

    kind: Literal["sse", "jsonlines"]

    @classmethod
    def wanted_by(cls, accept: str) -> "Framing":
        """JSON lines only for a caller that names them: some streaming clients accept JSON."""
        return cls("jsonlines" if "application/jsonlines" in accept.lower() else "sse")

    @property
    def media_type(self) -> str:
        return "text/event-stream" if self.kind == "sse" else "application/jsonlines"

    def event(self, document: dict[str, Any]) -> str:
        text = ascii_json(document)
        return f"data: {text}\n\n" if self.kind == "sse" else f"{text}\n"

    def done(self) -> str:
        """OpenAI's end mark, which JSON lines have no place for."""
        return "data: [DONE]\n\n" if self.kind == "sse" else ""
