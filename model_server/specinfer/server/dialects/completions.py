"""OpenAI's older completions: `prompt` in, its continuation out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from specinfer.request import Delta
from specinfer.server.backend import Engine
from specinfer.server.dialects.common import (
    Answer,
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

COMPLETIONS_UNSUPPORTED: Neutral = UNSUPPORTED | {
    "best_of": (1,),
    "logprobs": (0,),
    "suffix": ("",),
    "echo": (False,),
}

PromptText = Annotated[str, Field(min_length=1)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
# Several prompts go into one JSON-lines body, where each can fail by itself.
OnePromptText = Annotated[list[PromptText], Field(min_length=1, max_length=1)]
OneTokenIds = Annotated[list[TokenIds], Field(min_length=1, max_length=1)]


class CompletionBody(OpenAiBody):
    """A request of `/v1/completions` and of `/invocations` with `prompt`."""

    prompt: PromptText | OnePromptText | TokenIds | OneTokenIds


@dataclass(frozen=True, slots=True)
class Completions:
    """Reads completion bodies."""

    key: str = "prompt"
    ends_with_done: bool = True

    def read(self, raw: Mapping[str, Any], desk: Desk) -> Work:
        body = checked(CompletionBody, raw)
        refuse_unsupported(raw, COMPLETIONS_UNSUPPORTED)
        return Work(
            tokenise=_Prompt(body.prompt),
            params=openai_params(body, desk, body.max_tokens, "max_tokens"),
            stream=bool(body.stream),
            script=CompletionScript(body.wants_usage),
        )

    def problem(self, error: RequestError) -> tuple[int, Document]:
        return openai_problem(error)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt as text or token ids, alone or as a list of one."""

    prompt: str | list[str] | list[int] | list[list[int]]

    def __call__(self, engine: Engine) -> list[int]:
        prompt = self.prompt
        if isinstance(prompt, list) and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return engine.encode(prompt)
        return [token for token in prompt if isinstance(token, int)]


@dataclass(frozen=True, slots=True)
class CompletionScript:
    """Tells an answer as `text_completion`, whole or in pieces."""

    include_usage: bool

    def document(self, answer: Answer, stamp: Stamp) -> Any:
        return _document(stamp, answer.text, ending(answer)) | {"usage": usage(answer)}

    def opening(self, stamp: Stamp) -> Sequence[Document]:
        return ()

    def piece(self, delta: Delta, stamp: Stamp) -> Sequence[Document]:
        return (_document(stamp, delta.text, {"finish_reason": None}),) if delta.text else ()

    def closing(self, delta: Delta, answer: Answer, stamp: Stamp) -> Sequence[Document]:
        events = [_document(stamp, delta.text, ending(answer))]
        if self.include_usage:
            empty = envelope("text_completion", stamp) | {"choices": []}
            events.append(empty | {"usage": usage(answer)})
        return events


def _document(stamp: Stamp, text: str, end: Document) -> Document:
    choice = {"index": 0, "text": text, "logprobs": None} | end
    return envelope("text_completion", stamp) | {"choices": [choice]}
