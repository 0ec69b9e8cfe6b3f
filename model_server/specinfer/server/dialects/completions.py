"""OpenAI's older completions: `prompt` in, its continuation out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from specinfer.sampling import MAX_LOGPROBS
from specinfer.server.backend import Engine
from specinfer.server.dialects.common import (
    Answer,
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
from specinfer.server.dialects.logprobs import completion_logprobs
from specinfer.server.dialects.openai import (
    OpenAiBody,
    ending,
    envelope,
    openai_params,
    openai_problem,
    usage,
)
from specinfer.server.errors import RequestError

UNSUPPORTED: Neutral = {"best_of": (1,), "suffix": ("",)}

PromptText = Annotated[str, Field(min_length=1)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
# Several prompts go into one JSON-lines body, where each can fail by itself.
OnePromptText = Annotated[list[PromptText], Field(min_length=1, max_length=1)]
OneTokenIds = Annotated[list[TokenIds], Field(min_length=1, max_length=1)]


class CompletionBody(OpenAiBody):
    """A request of `/v1/completions` and of `/invocations` with `prompt`."""

    prompt: PromptText | OnePromptText | TokenIds | OneTokenIds
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None


@dataclass(frozen=True, slots=True)
class Completions:
    """Reads completion bodies."""

    key: str = "prompt"
    ends_with_done: bool = True

    def read(self, raw: Mapping[str, Any], desk: Desk) -> Work:
        body = checked(CompletionBody, raw)
        refuse_unsupported(raw, UNSUPPORTED)
        refuse_unsupported_forms(raw)
        if body.echo and body.logprobs is not None:
            message = "logprobs: those of an echoed prompt are not supported"
            raise RequestError(400, "unsupported_parameter", message, field="logprobs")
        prompt = _Prompt(body.prompt)
        return Work(
            tokenise=prompt,
            params=openai_params(body, desk, body.max_tokens, "max_tokens", body.logprobs),
            stream=bool(body.stream),
            script=CompletionScript(body.wants_usage, prompt if body.echo else None),
        )

    def problem(self, error: RequestError) -> tuple[int, Document]:
        return openai_problem(error)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt as text or token ids, alone or as a list of one."""

    prompt: str | list[str] | list[int] | list[list[int]]

    @property
    def only(self) -> str | list[int]:
        """The prompt, out of its list."""
        prompt: Any = self.prompt
        alone = isinstance(prompt, str) or isinstance(prompt[0], int)
        chosen: str | list[int] = prompt if alone else prompt[0]
        return chosen

    def __call__(self, engine: Engine) -> list[int]:
        prompt = self.only
        return engine.encode(prompt) if isinstance(prompt, str) else prompt

    def text(self, stamp: Stamp) -> str:
        prompt = self.only
        return prompt if isinstance(prompt, str) else stamp.decode(prompt)


@dataclass(frozen=True, slots=True)
class CompletionScript:
    """Tells an answer as `text_completion`, whole or in pieces."""

    include_usage: bool
    echo: _Prompt | None

    def document(self, answers: Sequence[Answer], stamp: Stamp) -> Any:
        before = self._echoed(stamp)
        choices = [
            {"index": index, "text": before + answer.text}
            | {"logprobs": completion_logprobs(answer.logprobs, stamp.decode, 0)}
            | ending(answer)
            for index, answer in enumerate(answers)
        ]
        return envelope("text_completion", stamp) | {"choices": choices, "usage": usage(answers)}

    def opening(self, choice: int, stamp: Stamp) -> Sequence[Document]:
        return (_chunk(stamp, choice, self._echoed(stamp)),) if self.echo else ()

    def piece(self, step: Step, stamp: Stamp) -> Sequence[Document]:
        delta = step.delta
        return (_step(stamp, step),) if delta.text or delta.logprobs else ()

    def closing(self, step: Step, answer: Answer, stamp: Stamp) -> Sequence[Document]:
        return (_step(stamp, step, **ending(answer)),)

    def tail(self, answers: Sequence[Answer], stamp: Stamp) -> Sequence[Document]:
        if not self.include_usage:
            return ()
        return (envelope("text_completion", stamp) | {"choices": [], "usage": usage(answers)},)

    def _echoed(self, stamp: Stamp) -> str:
        return self.echo.text(stamp) if self.echo else ""


def _step(stamp: Stamp, step: Step, **end: Any) -> Document:
    logprobs = completion_logprobs(step.delta.logprobs, stamp.decode, step.offset)
    return _chunk(stamp, step.choice, step.delta.text, logprobs=logprobs, **end)


def _chunk(stamp: Stamp, choice: int, text: str, **more: Any) -> Document:
    told = {"index": choice, "text": text, "logprobs": None, "finish_reason": None} | more
    return envelope("text_completion", stamp) | {"choices": [told]}
