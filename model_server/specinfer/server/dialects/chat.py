"""OpenAI's chat completions: `messages` in, one assistant message out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from specinfer.request import Delta
from specinfer.server.backend import Engine
from specinfer.server.dialects.common import (
    Answer,
    Body,
    Desk,
    Document,
    Neutral,
    Stamp,
    Work,
    checked,
    refuse_unsupported,
)
from specinfer.server.dialects.openai import (
    UNSUPPORTED,
    OpenAiBody,
    ending,
    envelope,
    openai_params,
    openai_problem,
    usage,
)
from specinfer.server.errors import RequestError

CHAT_UNSUPPORTED: Neutral = UNSUPPORTED | {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}


class TextPart(Body):
    """A piece of a message; images and sound are refused by name."""

    type: Literal["text"]
    text: str


class Message(Body):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    def plain(self) -> dict[str, str]:
        """Return the turn as chat templates take it; `developer` is today's name of `system`."""
        parts = [self.content] if isinstance(self.content, str) else [p.text for p in self.content]
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": "".join(parts)}


class ChatBody(OpenAiBody):
    """A request of `/v1/chat/completions` and of `/invocations` with `messages`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    """Reads chat bodies."""

    key: str = "messages"
    ends_with_done: bool = True

    def read(self, raw: Mapping[str, Any], desk: Desk) -> Work:
        body = checked(ChatBody, raw)
        refuse_unsupported(raw, CHAT_UNSUPPORTED)
        newer = body.max_completion_tokens
        limit, field = (
            (body.max_tokens, "max_tokens") if newer is None else (newer, "max_completion_tokens")
        )
        return Work(
            tokenise=_Conversation(tuple(body.messages)),
            params=openai_params(body, desk, limit, field),
            stream=bool(body.stream),
            script=ChatScript(body.wants_usage),
        )

    def problem(self, error: RequestError) -> tuple[int, Document]:
        return openai_problem(error)


@dataclass(frozen=True, slots=True)
class _Conversation:
    messages: tuple[Message, ...]

    def __call__(self, engine: Engine) -> list[int]:
        return engine.encode_chat([message.plain() for message in self.messages])


@dataclass(frozen=True, slots=True)
class ChatScript:
    """Tells an answer as `chat.completion` or its chunks."""

    include_usage: bool

    def document(self, answer: Answer, stamp: Stamp) -> Any:
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "message": message, "logprobs": None} | ending(answer)
        return envelope("chat.completion", stamp) | {"choices": [choice], "usage": usage(answer)}

    def opening(self, stamp: Stamp) -> Sequence[Document]:
        return (_chunk(stamp, {"role": "assistant", "content": ""}),)

    def piece(self, delta: Delta, stamp: Stamp) -> Sequence[Document]:
        return (_chunk(stamp, {"content": delta.text}),) if delta.text else ()

    def closing(self, delta: Delta, answer: Answer, stamp: Stamp) -> Sequence[Document]:
        chunks = [*self.piece(delta, stamp), _chunk(stamp, {}, ending(answer))]
        if self.include_usage:
            chunks.append(_chunk(stamp, None) | {"usage": usage(answer)})
        return chunks


def _chunk(stamp: Stamp, delta: Document | None, end: Document | None = None) -> Document:
    """Return a chunk with one choice, or with none when delta is None."""
    choice = {"index": 0, "delta": delta, "logprobs": None} | (end or {"finish_reason": None})
    choices = [] if delta is None else [choice]
    return envelope("chat.completion.chunk", stamp) | {"choices": choices}
