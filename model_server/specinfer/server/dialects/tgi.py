"""The dialect of Hugging Face's text-generation-inference: `inputs`, `parameters`, `stream`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from specinfer.request import SamplingParams, TokenLogprob
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
    StopList,
    Work,
    checked,
    refuse_unsupported,
    sampling_params,
    temperature_of,
)
from specinfer.server.dialects.form import TgiGrammar, only
from specinfer.server.dialects.logprobs import IMPOSSIBLE, tgi_token, tgi_top_tokens
from specinfer.server.dialects.totals import speculation
from specinfer.server.errors import RequestError

UNSUPPORTED: Neutral = {
    "best_of": (1,),
    "decoder_input_details": (False,),
    "watermark": (False,),
    "adapter_id": (),
}
FINISH = {"length": "length", "eos": "eos_token", "stop": "stop_sequence"}
ERROR_TYPES = {429: "overloaded", 503: "overloaded", 500: "generation", 504: "generation"}


class Parameters(Body):
    """`parameters` of a request."""

    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    min_new_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    do_sample: bool | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stop: StopList | None = None
    stop_sequences: StopList | None = None
    return_full_text: bool | None = None
    details: bool | None = None
    top_n_tokens: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    truncate: Annotated[int, Field(ge=1)] | None = None
    ignore_eos_token: bool | None = None
    grammar: TgiGrammar | None = None

    @property
    def logprobs(self) -> int | None:
        """How many likeliest tokens to tell beside each token's own log-probability."""
        return self.top_n_tokens or (0 if self.details else None)


class TgiBody(Body):
    """A request of `/generate` and of `/invocations` with `inputs`."""

    inputs: Annotated[str, Field(min_length=1)]
    parameters: Parameters | None = None
    stream: bool | None = None


@dataclass(frozen=True, slots=True)
class Tgi:
    """Reads TGI bodies and writes TGI errors (422 for a faulty body)."""

    key: str = "inputs"
    ends_with_done: bool = False

    def read(self, raw: Mapping[str, Any], desk: Desk) -> Work:
        body = checked(TgiBody, raw)
        wish = body.parameters or Parameters()
        refuse_unsupported(raw.get("parameters") or {}, UNSUPPORTED, "parameters.")
        params = _params(wish, desk)
        return Work(
            tokenise=_Prompt(body.inputs, wish.truncate),
            params=params,
            stream=bool(body.stream),
            script=TgiScript(
                prefix=body.inputs if wish.return_full_text else "",
                seed=params[0].seed,
                list_tokens=bool(wish.details),
                as_object=desk.settings.tgi_object,
            ),
        )

    def problem(self, error: RequestError) -> tuple[int, Document]:
        status = 422 if error.status == 400 else error.status
        kind = ERROR_TYPES.get(status, "validation")
        document = {"error": error.message, "error_type": kind, "code": error.code}
        return status, document | ({"param": error.field} if error.field else {})


def _params(wish: Parameters, desk: Desk) -> tuple[SamplingParams, ...]:
    return sampling_params(
        desk,
        {name: f"parameters.{name}" for name in SamplingParams.__dataclass_fields__},
        max_new_tokens=wish.max_new_tokens,
        min_new_tokens=wish.min_new_tokens,
        temperature=temperature_of(
            do_sample=wish.do_sample,
            temperature=wish.temperature,
            top_k=wish.top_k,
            top_p=wish.top_p,
            typical_p=wish.typical_p,
            min_p=wish.min_p,
            default=0.0,
        ),
        top_k=max(wish.top_k or 0, 0),
        top_p=wish.top_p,
        typical_p=wish.typical_p,
        min_p=wish.min_p,
        repetition_penalty=wish.repetition_penalty,
        frequency_penalty=wish.frequency_penalty,
        presence_penalty=wish.presence_penalty,
        seed=wish.seed,
        stop=tuple((wish.stop or []) + (wish.stop_sequences or [])),
        ignore_eos=wish.ignore_eos_token,
        logprobs=wish.logprobs,
        grammar=only(wish.grammar.demands()) if wish.grammar else None,
    )


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The prompt's tokens, cut from the left on request."""

    text: str
    truncate: int | None

    def __call__(self, engine: Engine) -> list[int]:
        tokens = engine.encode(self.text)
        return tokens if self.truncate is None else tokens[-self.truncate :]


@dataclass(frozen=True, slots=True)
class TgiScript:
    """Tells an answer as TGI does, `details.speculation` added."""

    prefix: str
    seed: int | None
    list_tokens: bool
    as_object: bool

    def document(self, answers: Sequence[Answer], stamp: Stamp) -> Any:
        (answer,) = answers
        details = self._details(answer)
        if self.list_tokens:
            details |= {"prefill": [], "tokens": _tokens(answer, stamp)}
        details |= _top_tokens(answer.logprobs, stamp)
        result = {"generated_text": self.prefix + answer.text, "details": details}
        return result if self.as_object else [result]

    def opening(self, choice: int, stamp: Stamp) -> Sequence[Document]:
        return ()

    def piece(self, step: Step, stamp: Stamp) -> Sequence[Document]:
        return (_event(step, stamp),)

    def closing(self, step: Step, answer: Answer, stamp: Stamp) -> Sequence[Document]:
        text = self.prefix + answer.text
        return (_event(step, stamp) | {"generated_text": text, "details": self._details(answer)},)

    def tail(self, answers: Sequence[Answer], stamp: Stamp) -> Sequence[Document]:
        return ()

    def _details(self, answer: Answer) -> Document:
        details: Document = {
            "finish_reason": FINISH[answer.finish_reason],
            "generated_tokens": len(answer.tokens),
            "seed": self.seed,
            "prompt_tokens": answer.prompt_tokens,
            "input_length": answer.prompt_tokens,
            "speculation": speculation(answer.stats),
        }
        return details | ({"truncated_by": answer.truncated_by} if answer.truncated_by else {})


def _tokens(answer: Answer, stamp: Stamp) -> list[Document]:
    values = {place: one.logprob for place, one in enumerate(answer.logprobs)}
    return [
        tgi_token(token, stamp.decode([token]), values.get(place))
        for place, token in enumerate(answer.tokens)
    ]


def _top_tokens(each: Sequence[TokenLogprob], stamp: Stamp) -> Document:
    return {"top_tokens": tgi_top_tokens(each, stamp.decode)} if each and each[0].top else {}


def _event(step: Step, stamp: Stamp) -> Document:
    """One event a step: its text belongs to several tokens, all of them listed, the last named."""
    delta = step.delta
    last = delta.tokens[-1] if delta.tokens else None
    values = [max(one.logprob, IMPOSSIBLE) for one in delta.logprobs]
    token = tgi_token(last, delta.text, values[-1] if values else None)
    token |= {"ids": list(delta.tokens)} | ({"logprobs": values} if values else {})
    event = {"token": token, "generated_text": None, "details": None}
    return event | _top_tokens(delta.logprobs, stamp)
