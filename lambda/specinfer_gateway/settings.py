"""Every setting of the function, read once from SPECINFER_* environment variables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from specinfer_gateway.errors import SettingsError

PREFIX = "SPECINFER_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each field is the lower-case name of its variable; sizes in bytes, times in seconds."""

    endpoint: str  # name of the SageMaker endpoint
    inference_component: str = ""  # the component of it that runs the model; empty: it has none
    model_id: str = "specinfer"
    model_revision: str = ""  # hash of weights and configuration; part of every cache key
    engine_revision: str = ""  # hash of the engine's settings; part of seeded requests' keys

    cache_table: str = ""  # DynamoDB table with the string key `cache_key`; empty: no cache
    cache_ttl_seconds: int = 86_400
    single_flight: bool = True

    # API Gateway waits 29 s for a buffered answer; one second is left to tell of a failure.
    deadline_seconds: float = 28.0
    # SageMaker cuts a streamed answer at 8 minutes.
    stream_deadline_seconds: float = 480.0

    max_body_bytes: int = 262_144
    max_prompt_chars: int = 100_000
    max_messages: int = 256
    max_new_tokens: int = 2_048
    default_max_new_tokens: int = 128
    content_filter: str = ""  # "module:function"; empty: none

    cors_origin: str = "*"
    api_keys_secret: str = ""  # Secrets Manager id; empty: API Gateway alone checks keys
    api_keys_max_age_seconds: int = 300

    async_endpoint: str = ""  # name of the asynchronous endpoint; empty: no jobs
    jobs_table: str = ""  # DynamoDB table with the string key `job_id`
    jobs_bucket: str = ""
    jobs_ttl_seconds: int = 604_800

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise SettingsError(f"{_variable(field.name)} is {value}; it must be above 0")
        if not self.endpoint:
            raise SettingsError(f"{_variable('endpoint')} is not set")
        if self.cache_table and not self.model_revision:
            raise SettingsError(
                f"{_variable('cache_table')} is set without {_variable('model_revision')}: "
                "answers of an older model could be served"
            )
        jobs = (self.async_endpoint, self.jobs_table, self.jobs_bucket)
        if any(jobs) and not all(jobs):
            names = ", ".join(map(_variable, ("async_endpoint", "jobs_table", "jobs_bucket")))
            raise SettingsError(f"{names}: set all three or none")


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Read the settings; raises SettingsError naming the variable.

    Inside Lambda an unknown SPECINFER_ variable is an error.  Elsewhere the shell is shared with
    the engine, whose variables have the same prefix.
    """
    given = {name: text for name, text in environment.items() if name.startswith(PREFIX)}
    known = {_variable(field.name): field for field in fields(Settings)}
    unknown = sorted(given.keys() - known.keys())
    if unknown and "AWS_LAMBDA_FUNCTION_NAME" in environment:
        raise SettingsError(f"{unknown[0]} is not a setting of the gateway")
    values: dict[str, Any] = {
        field.name: _read(name, given[name], field.type)
        for name, field in known.items()
        if name in given
    }
    if "endpoint" not in values:
        raise SettingsError(f"{_variable('endpoint')} is not set")
    return Settings(**values)


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _flag(text: str) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[text.lower()]


PARSERS: dict[object, Callable[[str], object]] = {str: str, int: int, float: float, bool: _flag}


def _read(name: str, text: str, kind: object) -> object:
    try:
        return PARSERS[kind](text)
    except (ValueError, KeyError):
        raise SettingsError(
            f"{name} is {text!r}; expected {getattr(kind, '__name__', kind)}"
        ) from None
