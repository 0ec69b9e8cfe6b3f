"""What differs between chat, completions and /generate: the body, its meaning, the answer."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specinfer_gateway.errors import GatewayError, openai_error, tgi_error
from specinfer_gateway.requests import Body, ChatRequest, CompletionRequest, GenerateRequest

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API that clients speak.

    parameters and finish return the parts of a request and of an answer that decide whether the
    answer may be kept; unwrap takes the container's document, None when it has another shape.
    """

    name: str
    route: str
    key: str  # the body's key by which the container tells the dialect
    request: type[Body]
    invalid: int  # HTTP status of a faulty body
    problem: Callable[[GatewayError], Document]
    default_temperature: float
    length_keys: tuple[str, ...]  # first one is filled in when none is given
    parameters: Callable[[Document], Document]
    texts: Callable[[Document], Iterator[str]]
    unwrap: Callable[[Any], Document | None]
    finish: Callable[[Document], Mapping[str, Any]]
    generated: Callable[[Document], Any]  # number of tokens
    speculation: Callable[[Document], Mapping[str, Any]]
    ended: Callable[[bytes], bool]  # whether events end with a stream's last one

    def read(self, raw: bytes) -> Document | None:
        """Return the answer in an endpoint's or a kept document, None when it is not one."""
        try:
            return self.unwrap(json.loads(raw))
        except ValueError:
            return None


def _chat_texts(body: Document) -> Iterator[str]:
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            yield content
        else:
            yield from (part["text"] for part in content)


def _prompt_texts(body: Document) -> Iterator[str]:
    prompt = body["prompt"]
    if isinstance(prompt, str):
        yield prompt
    else:
        yield from (part for part in prompt if isinstance(part, str))


def _generate_parameters(body: Document) -> Document:
    if body.get("parameters") is None:
        body["parameters"] = {}
    parameters: Document = body["parameters"]
    return parameters


def _openai_document(answer: Any) -> Document | None:
    if not isinstance(answer, dict):
        return None
    choices = answer.get("choices")
    sound = isinstance(choices, list) and choices and isinstance(choices[0], dict)
    return answer if sound else None


def _tgi_document(answer: Any) -> Document | None:
    """The container answers with an array of one; the REST API with that one."""
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    sound = isinstance(answer, dict) and isinstance(answer.get("generated_text"), str)
    return answer if sound else None


def _details(answer: Document) -> Mapping[str, Any]:
    return answer.get("details") or {}


def _usage(answer: Document) -> Mapping[str, Any]:
    return answer.get("usage") or {}


def _openai_ended(events: bytes) -> bool:
    """OpenAI's streams close with a mark, unless an error closed them."""
    last = _last_data(events)
    return last == b"[DONE]" or "error" in _object(last)


def _tgi_ended(events: bytes) -> bool:
    """TGI's last event holds the whole text; the others hold null."""
    last = _object(_last_data(events))
    return "error" in last or last.get("generated_text") is not None


def _last_data(events: bytes) -> bytes:
    return events.rstrip().rpartition(b"\n\n")[2].removeprefix(b"data:").strip()


def _object(text: bytes) -> Document:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


CHAT = Dialect(
    name="chat",
    route="/v1/chat/completions",
    key="messages",
    request=ChatRequest,
    invalid=400,
    problem=openai_error,
    default_temperature=1.0,
    length_keys=("max_tokens", "max_completion_tokens"),
    parameters=lambda body: body,
    texts=_chat_texts,
    unwrap=_openai_document,
    finish=lambda answer: answer["choices"][0],
    generated=lambda answer: _usage(answer).get("completion_tokens"),
    speculation=lambda answer: _usage(answer).get("speculation") or {},
    ended=_openai_ended,
)
COMPLETIONS = Dialect(
    name="completions",
    route="/v1/completions",
    key="prompt",
    request=CompletionRequest,
    invalid=400,
    problem=openai_error,
    default_temperature=1.0,
    length_keys=("max_tokens",),
    parameters=lambda body: body,
    texts=_prompt_texts,
    unwrap=_openai_document,
    finish=lambda answer: answer["choices"][0],
    generated=lambda answer: _usage(answer).get("completion_tokens"),
    speculation=lambda answer: _usage(answer).get("speculation") or {},
    ended=_openai_ended,
)
GENERATE = Dialect(
    name="generate",
    route="/generate",
    key="inputs",
    request=GenerateRequest,
    invalid=422,
    problem=tgi_error,
    default_temperature=0.0,
    length_keys=("max_new_tokens",),
    parameters=_generate_parameters,
    texts=lambda body: iter((body["inputs"],)),
    unwrap=_tgi_document,
    finish=_details,
    generated=lambda answer: _details(answer).get("generated_tokens"),
    speculation=lambda answer: _details(answer).get("speculation") or {},
    ended=_tgi_ended,
)
DIALECTS = (CHAT, COMPLETIONS, GENERATE)
