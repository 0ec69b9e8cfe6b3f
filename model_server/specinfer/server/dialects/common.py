"""What every dialect shares: strict bodies, the work a body asks for, the answer to be told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specinfer.errors import ParameterError
from specinfer.request import Delta, SamplingParams, TokenLogprob
from specinfer.server.backend import Engine
from specinfer.server.errors import RequestError
from specinfer.server.settings import ServerSettings
from specinfer.tally import SpeculationStats

Document = dict[str, Any]
Neutral = dict[str, tuple[object, ...]]  # a parameter, and the values of it that ask for nothing
StopText = Annotated[str, Field(min_length=1, max_length=256)]
# Four is what both TGI and OpenAI allow.
StopList = Annotated[list[StopText], Field(max_length=4)]


class Body(BaseModel):
    """A request body: exact JSON types; unknown keys are ignored, client libraries leak theirs."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What marks one answer."""

    id: str
    created: int  # seconds since the epoch
    model: str
    revision: str
    decode: Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished generation."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: Literal["length", "eos", "stop"]
    stats: SpeculationStats
    prompt_tokens: int
    truncated_by: Literal["deadline", "shutdown"] | None
    logprobs: tuple[TokenLogprob, ...] = ()  # of `tokens`, where asked for


@dataclass(frozen=True, slots=True)
class Step:
    """What one step adds to one choice of a stream."""

    choice: int
    delta: Delta
    offset: int  # characters of the choice that came before


class Script(Protocol):
    """Tells the choices of one answer, whole or piece by piece."""

    def document(self, answers: Sequence[Answer], stamp: Stamp) -> Any: ...

    def opening(self, choice: int, stamp: Stamp) -> Sequence[Document]: ...

    def piece(self, step: Step, stamp: Stamp) -> Sequence[Document]: ...

    def closing(self, step: Step, answer: Answer, stamp: Stamp) -> Sequence[Document]:
        """Tell a choice's last step."""

    def tail(self, answers: Sequence[Answer], stamp: Stamp) -> Sequence[Document]:
        """Tell what follows the last choice."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a body asks for."""

    tokenise: Callable[[Engine], list[int]]
    params: tuple[SamplingParams, ...]  # one for each choice
    stream: bool
    script: Script


@dataclass(frozen=True, slots=True)
class Desk:
    """What reading a body takes besides the body."""

    settings: ServerSettings
    draw_seed: Callable[[], int]


class Dialect(Protocol):
    """One API that clients speak."""

    @property
    def key(self) -> str:
        """The body's key that tells it."""

    @property
    def ends_with_done(self) -> bool:
        """Whether a stream closes with OpenAI's mark."""

    def read(self, raw: Mapping[str, Any], desk: Desk) -> Work:
        """Check a body; raises RequestError naming the field."""

    def problem(self, error: RequestError) -> tuple[int, Document]:
        """Return the HTTP status and the document of an error."""


Model = TypeVar("Model", bound=Body)


def checked(kind: type[Model], raw: Mapping[str, Any]) -> Model:
    """Validate a body; raises RequestError with the first offending field's path."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(_path(first["loc"], raw)) or "body"
        raise RequestError(
            400, "invalid_parameter", f"{field}: {first['msg']}", field=field
        ) from None


def _path(location: Sequence[int | str], raw: object) -> list[str]:
    """Keep the keys and indices of the body itself; pydantic adds the names of union arms."""
    kept: list[str] = []
    for step in location:
        if isinstance(raw, Mapping) and isinstance(step, str):
            kept.append(step)
            raw = raw.get(step)
        elif isinstance(raw, list) and isinstance(step, int):
            kept.append(str(step))
            raw = raw[step] if step < len(raw) else None
    return kept


def refuse_unsupported(raw: Mapping[str, Any], neutral: Neutral, path: str = "") -> None:
    """Refuse a known parameter that would change the answer and that the engine lacks.

    Absent and null always ask for nothing.
    """
    for name, harmless in neutral.items():
        value = raw.get(name)
        if value is not None and value not in harmless:
            field = f"{path}{name}"
            raise RequestError(
                400, "unsupported_parameter", f"{field}: {value!r} is not supported", field=field
            )


def temperature_of(
    *,
    do_sample: bool | None = None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    typical_p: float | None = None,
    min_p: float | None = None,
    default: float,
) -> float:
    """Greedy if do_sample is false or temperature 0; else any sampling parameter means sampling."""
    if do_sample is False:
        return 0.0
    if temperature is not None:
        return temperature
    narrowed = bool(top_k and top_k > 0) or bool(min_p)
    narrowed = narrowed or any(mass is not None and mass < 1 for mass in (top_p, typical_p))
    return 1.0 if do_sample or narrowed else default


def sampling_params(
    desk: Desk,
    names: Mapping[str, str],
    *,
    max_new_tokens: int | None,
    choices: int = 1,
    **chosen: Any,
) -> tuple[SamplingParams, ...]:
    """Build the engine's parameters of each choice; what is None is left to the engine's default.

    names maps its fields to the dialect's, for the messages.  A seed is the first choice's, each
    further one's is one higher.  A sampled request without a seed is given one, so that its
    answer can be told apart and redone.
    """
    budget = desk.settings.default_max_new_tokens if max_new_tokens is None else max_new_tokens
    limit = desk.settings.max_new_tokens
    field = names["max_new_tokens"]
    if budget > limit:
        raise RequestError(
            400, "too_many_tokens", f"{field}: {budget} exceeds the limit of {limit}", field=field
        )
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if chosen["temperature"] > 0:
        chosen.setdefault("seed", desk.draw_seed())
    try:
        first = SamplingParams(max_new_tokens=budget, **chosen)
        if first.seed is None:
            return (first,) * choices
        return tuple(replace(first, seed=first.seed + choice) for choice in range(choices))
    except ParameterError as error:
        field = names.get(error.field, error.field)
        raise RequestError(
            400, "invalid_parameter", f"{field}: {error.message}", field=field
        ) from None
