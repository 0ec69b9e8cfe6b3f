"""What OpenAI's two text APIs share: sampling parameters, usage, errors, stream options."""

from typing import Annotated

from pydantic import Field

from specinfer.request import SamplingParams
from specinfer.server.dialects.common import (
    Answer,
    Body,
    Desk,
    Document,
    Neutral,
    Stamp,
    StopList,
    StopText,
    sampling_params,
    speculation,
    temperature_of,
)
from specinfer.server.errors import RequestError

FINISH = {"length": "length", "eos": "stop", "stop": "stop"}
ERROR_TYPES = {
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable",
    504: "timeout",
}
UNSUPPORTED: Neutral = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
}


class StreamOptions(Body):
    """`stream_options` of a request."""

    include_usage: bool | None = None


class OpenAiBody(Body):
    """The parameters of chat and completions alike."""

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stop: StopText | StopList | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


def openai_params(
    body: OpenAiBody, desk: Desk, max_tokens: int | None, field: str
) -> SamplingParams:
    """Build the engine's parameters; field names the token limit that the body used."""
    return sampling_params(
        desk,
        {"max_new_tokens": field},
        max_new_tokens=max_tokens,
        temperature=temperature_of(
            temperature=body.temperature, top_k=body.top_k, top_p=body.top_p, default=1.0
        ),
        top_k=max(body.top_k or 0, 0),
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        ignore_eos=bool(body.ignore_eos),
    )


def openai_problem(error: RequestError) -> tuple[int, Document]:
    """Return an error as OpenAI writes it."""
    kind = ERROR_TYPES.get(error.status, "invalid_request_error")
    return error.status, {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.field,
            "code": error.code,
        }
    }


def usage(answer: Answer) -> Document:
    """Return the token counts, and the figures of speculation next to them."""
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": len(answer.tokens),
        "total_tokens": answer.prompt_tokens + len(answer.tokens),
        "speculation": speculation(answer.stats),
    }


def envelope(kind: str, stamp: Stamp) -> Document:
    """Return the fields every document of one answer shares."""
    return {
        "id": stamp.id,
        "object": kind,
        "created": stamp.created,
        "model": stamp.model,
        "system_fingerprint": stamp.revision,
    }


def ending(answer: Answer) -> Document:
    """Return how a choice ended."""
    cut = {"truncated_by": answer.truncated_by} if answer.truncated_by else {}
    return {"finish_reason": FINISH[answer.finish_reason]} | cut
