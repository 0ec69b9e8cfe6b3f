"""The one table of settings: SPECINFER_* environment over specinfer.json in the model folder."""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from specinfer.config import EngineConfig, Tree, parse_tree
from specinfer.server.errors import SettingsError

# What a model folder may say about itself beside its settings.
ABOUT = frozenset({"format", "role", "licence"})
PREFIX = "SPECINFER_"
FILE = "specinfer.json"
# Where SageMaker mounts the model artefact.
# https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html
MODEL_FOLDER = Path("/opt/ml/model")
# Read by other parts of the product from the same environment.
ELSEWHERE = frozenset({"cache", "kernels"})
SHORT = {"tp": "tensor_parallel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How to serve over HTTP.  Times are in seconds."""

    host: str = "0.0.0.0"
    port: int = 8080
    default_max_new_tokens: int = 256  # for a request that names no number
    max_new_tokens: int = 4096  # the most a request may ask for
    max_body_bytes: int = 1 << 20
    max_inflight: int = 256  # requests in the server, whatever they are waiting for
    deadline_s: float = 55.0  # SageMaker cuts a buffered invocation at 60 s
    stream_deadline_s: float = 470.0  # ... and a streamed one at 8 min
    batch_deadline_s: float = 590.0  # ... and a batch transform's at 600 s
    batch_parallel: int = 8  # lines of a JSON-lines body that run together
    drain_s: float = 20.0  # SIGKILL follows SIGTERM after 30 s
    max_concurrent_transforms: int = 4
    max_payload_mb: int = 6
    tgi_object: bool = False  # answer `inputs` with an object instead of an array of one
    emf: bool = False  # one CloudWatch embedded-metric line a request on stdout
    otlp_endpoint: str | None = None

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(ServerSettings).items():
            if hint in (int, float) and getattr(self, name) <= 0:
                raise SettingsError(f"{name}: must be above 0, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything one server process needs to know."""

    engine: EngineConfig
    server: ServerSettings


Part = TypeVar("Part", EngineConfig, ServerSettings)


def known_settings() -> dict[str, Any]:
    """Return each setting's name and type."""
    return get_type_hints(EngineConfig) | get_type_hints(ServerSettings)


def load_settings(environ: Mapping[str, str], overrides: Mapping[str, Any] = {}) -> Settings:
    """Read the table; overrides (a command line's) win over environment, that over the file.

    Raises SettingsError naming the setting, ConfigError for values that do not fit together.
    """
    chosen = _from_environment(environ) | dict(overrides)
    folder = Path(chosen.pop("model", MODEL_FOLDER))
    values = {"model": folder} | _from_file(folder) | chosen
    if values.get("ssms"):
        values["ssms"] = _members(values["ssms"])
    return Settings(_build(EngineConfig, values), _build(ServerSettings, values))


def _members(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Put the SSMs of a pool, a folder's or one that is shipped, in its place."""
    from specinfer.ssm import pool_members, shipped_pool  # brings torch: not for `--help`

    folders = [folder for folder in folders if str(folder) != "none"]
    pools = (shipped_pool(str(folder)) or Path(folder) for folder in folders)
    return tuple(member for pool in pools for member in pool_members(pool))


def _build(kind: type[Part], values: Mapping[str, Any]) -> Part:
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    given = {
        name.removeprefix(PREFIX).lower(): text
        for name, text in environ.items()
        if name.startswith(PREFIX)
    }
    return {
        SHORT.get(name, name): parse(SHORT.get(name, name), text, shown=PREFIX + name.upper())
        for name, text in given.items()
        if name not in ELSEWHERE
    }


def _from_file(folder: Path) -> dict[str, Any]:
    """Read the model folder's own settings; its relative paths start at that folder."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise SettingsError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{path} must hold an object, not a {type(document).__name__}")
    values = {
        name: parse(name, value, f"{path}: {name}")
        for name, value in document.items()
        if name not in ABOUT
    }
    if "model" in values:
        values["model"] = folder / values["model"]
    if "ssms" in values:
        values["ssms"] = tuple(folder / ssm for ssm in values["ssms"])
    return values


def parse(name: str, value: object, shown: str) -> Any:
    """Turn an environment's text or a file's JSON value into the setting's type."""
    known = known_settings()
    if name not in known:
        raise SettingsError(f"{shown} is not a setting{_nearest(name, known)}")
    hint = known[name]
    try:
        if hint == Tree:
            return parse_tree(str(value))
        if isinstance(value, str) and hint == tuple[Path, ...]:
            value = [part.strip() for part in value.split(",") if part.strip()]
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise SettingsError(f"{shown}: {error.errors()[0]['msg']}, got {value!r}") from None


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]} ({PREFIX}{close[0].upper()})?" if close else ""
