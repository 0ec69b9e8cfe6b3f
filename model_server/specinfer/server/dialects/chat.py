"""OpenAI's chat completions: `messages` in, one assistant message out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from specinfer.sampling import MAX_LOGPROBS
from specinfer.server.backend import Engine
from specinfer.server.dialects.common import (
    Answer,
    Body,
    Desk,
    Document,
    Neutral,
    Stamp,
    Step,
    Work,
    checked,
    refuse_unsupported,
)
from specinfer.server.dialects.form import refuse_unsupported_forms
from specinfer.server.dialects.logprobs import chat_logprobs
from specinfer.server.dialects.openai import (
    OpenAiBody,
    ending,
    envelope,
    openai_params,
    openai_problem,
    usage,
)
from specinfer.server.errors import RequestError

UNSUPPORTED: Neutral = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
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
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    """Reads chat bodies."""

    key: str = "messages"
    ends_with_done: bool = True

    def read(self, raw: Mapping[str, Any], desk: Desk) -> Work:
        body = checked(ChatBody, raw)
        refuse_unsupported(raw, UNSUPPORTED)
        refuse_unsupported_forms(raw)
        newer = body.max_completion_tokens
        limit, field = (
            (body.max_tokens, "max_tokens") if newer is None else (newer, "max_completion_tokens")
        )
        return Work(
            tokenise=_Conversation(tuple(body.messages)),
            params=openai_params(body, desk, limit, field, _logprobs(body)),
            stream=bool(body.stream),
            script=ChatScript(body.wants_usage),
        )

    def problem(self, error: RequestError) -> tuple[int, Document]:
        return openai_problem(error)


def _logprobs(body: ChatBody) -> int | None:
    """Return how many likeliest tokens to tell; raises RequestError where none can be told."""
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        message = f"top_logprobs: {body.top_logprobs} needs logprobs to be true"
        raise RequestError(400, "invalid_parameter", message, field="top_logprobs")
    return None


@dataclass(frozen=True, slots=True)
class _Conversation:
    messages: tuple[Message, ...]

    def __call__(self, engine: Engine) -> list[int]:
        return engine.encode_chat([message.plain() for message in self.messages])


@dataclass(frozen=True, slots=True)
class ChatScript:
    """Tells an answer as `chat.completion` or its chunks."""

    include_usage: bool

    def document(self, answers: Sequence[Answer], stamp: Stamp) -> Any:
        choices = [_choice(index, answer, stamp) for index, answer in enumerate(answers)]
        return envelope("chat.completion", stamp) | {"choices": choices, "usage": usage(answers)}

    def opening(self, choice: int, stamp: Stamp) -> Sequence[Document]:
        return (_chunk(stamp, choice, {"role": "assistant", "content": ""}),)

    def piece(self, step: Step, stamp: Stamp) -> Sequence[Document]:
        delta = step.delta
        if not delta.text and not delta.logprobs:
            return ()
        logprobs = chat_logprobs(delta.logprobs, stamp.decode)
        return (_chunk(stamp, step.choice, {"content": delta.text}, logprobs=logprobs),)

    def closing(self, step: Step, answer: Answer, stamp: Stamp) -> Sequence[Document]:
        return [*self.piece(step, stamp), _chunk(stamp, step.choice, {}, **ending(answer))]

    def tail(self, answers: Sequence[Answer], stamp: Stamp) -> Sequence[Document]:
        if not self.include_usage:
            return ()
        told = {"choices": [], "usage": usage(answers)}
        return (envelope("chat.completion.chunk", stamp) | told,)


def _choice(index: int, answer: Answer, stamp: Stamp) -> Document:
    message = {"role": "assistant", "content": answer.text}
    logprobs = chat_logprobs(answer.logprobs, stamp.decode)
    return {"index": index, "message": message, "logprobs": logprobs} | ending(answer)


def _chunk(stamp: Stamp, choice: int, delta: Document, **more: Any) -> Document:
    told = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": None} | more
    return envelope("chat.completion.chunk", stamp) | {"choices": [told]}
