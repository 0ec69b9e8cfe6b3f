"""What OpenAI's two text APIs share: sampling parameters, usage, errors, stream options."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from specinfer.request import SamplingParams
from specinfer.server.dialects.common import (
    Answer,
    Body,
    Desk,
    Document,
    Stamp,
    StopList,
    StopText,
    sampling_params,
    temperature_of,
)
from specinfer.server.dialects.form import FormBody, only
from specinfer.server.dialects.totals import Totals, speculation
from specinfer.server.errors import RequestError

FINISH = {"length": "length", "eos": "stop", "stop": "stop"}
ERROR_TYPES = {
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable",
    504: "timeout",
}
MAX_CHOICES = 8
# Each biased or stopping token costs every row of every step an index.
MAX_TOKENS_NAMED = 1024
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenKey = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")]
Bias = Annotated[float, Field(ge=-100, le=100)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class StreamOptions(Body):
    """`stream_options` of a request."""

    include_usage: bool | None = None


class OpenAiBody(FormBody):
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
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: Annotated[dict[TokenKey, Bias], Field(max_length=MAX_TOKENS_NAMED)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_TOKENS_NAMED)] | None = None

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


def openai_params(
    body: OpenAiBody, desk: Desk, max_tokens: int | None, field: str, logprobs: int | None
) -> tuple[SamplingParams, ...]:
    """Build each choice's parameters; field names the token limit that the body used."""
    return sampling_params(
        desk,
        {"max_new_tokens": field, "min_new_tokens": "min_tokens"},
        max_new_tokens=max_tokens,
        choices=body.n or 1,
        min_new_tokens=body.min_tokens,
        temperature=temperature_of(
            temperature=body.temperature, top_k=body.top_k, top_p=body.top_p, default=1.0
        ),
        top_k=max(body.top_k or 0, 0),
        top_p=body.top_p,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        logit_bias={int(token): bias for token, bias in (body.logit_bias or {}).items()},
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=body.ignore_eos,
        logprobs=logprobs,
        grammar=only(body.demands()),
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


def usage(answers: Sequence[Answer]) -> Document:
    """Return the token counts, and the figures of speculation next to them."""
    totals = Totals.of(answers)
    return {
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.generated_tokens,
        "total_tokens": totals.prompt_tokens + totals.generated_tokens,
        "speculation": speculation(totals.stats),
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
