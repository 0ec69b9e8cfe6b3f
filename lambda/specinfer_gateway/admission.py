"""Which requests are let in, and what they become: bounds of the settings, content filter."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from specinfer_gateway.dialects import DIALECTS, Dialect, Document
from specinfer_gateway.errors import GatewayError, SettingsError
from specinfer_gateway.settings import Settings

# Takes one text of a request; returns why it is refused, or None.
ContentFilter = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request: the body as it goes to the container."""

    dialect: Dialect
    body: Document
    prompt_chars: int
    max_tokens: int
    stream: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """Turns bodies into requests."""

    settings: Settings
    content_filter: ContentFilter | None = None

    def admit(self, dialect: Dialect, body: Document) -> Request:
        """Check a body; raises GatewayError naming the field and the limit."""
        try:
            return self._admit(dialect, body)
        except GatewayError as error:
            if error.status == 400:
                error.status = dialect.invalid
            raise

    def _admit(self, dialect: Dialect, body: Document) -> Request:
        check_shape(dialect, body)
        for other in DIALECTS:
            if other is not dialect and body.get(other.key) is not None:
                message = f"{other.key} belongs to {other.route}, not to {dialect.route}"
                raise GatewayError(400, "ambiguous_body", message, param=other.key)
        self._check_messages(body)
        characters = self._check_texts(dialect, body)
        tokens = self._bound_length(dialect, body)
        return Request(dialect, body, characters, tokens, stream=bool(body.get("stream")))

    def _check_messages(self, body: Document) -> None:
        count, limit = len(body.get("messages") or ()), self.settings.max_messages
        if count > limit:
            message = f"messages: {count} messages exceed the limit of {limit}"
            raise GatewayError(400, "too_many_messages", message, param="messages")

    def _check_texts(self, dialect: Dialect, body: Document) -> int:
        texts = list(dialect.texts(body))
        characters, limit = sum(map(len, texts)), self.settings.max_prompt_chars
        if characters > limit:
            message = f"{dialect.key}: {characters} characters exceed the limit of {limit}"
            raise GatewayError(400, "prompt_too_long", message, param=dialect.key)
        for text in texts:
            refusal = self.content_filter(text) if self.content_filter else None
            if refusal is not None:
                raise GatewayError(400, "content_filter", refusal, param=dialect.key)
        return characters

    def _bound_length(self, dialect: Dialect, body: Document) -> int:
        """Fill in the number of tokens, so that the answer depends on nothing but the body."""
        parameters = dialect.parameters(body)
        limit = self.settings.max_new_tokens
        given = [key for key in dialect.length_keys if parameters.get(key) is not None]
        for key in given:
            if parameters[key] > limit:
                path = key if parameters is body else f"parameters.{key}"
                message = f"{path}: {parameters[key]} exceeds the limit of {limit}"
                raise GatewayError(400, "too_many_tokens", message, param=path)
        if not given:
            key = dialect.length_keys[0]
            parameters[key] = min(self.settings.default_max_new_tokens, limit)
            given = [key]
        return int(parameters[given[-1]])


def check_shape(dialect: Dialect, body: Document) -> None:
    """Check the JSON types and fixed bounds; raises GatewayError naming the field."""
    try:
        dialect.request.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(_path(first["loc"], body)) or "body"
        message = f"{param}: {first['msg']}"
        raise GatewayError(400, "invalid_parameter", message, param=param) from None


def _path(location: tuple[int | str, ...], body: Any) -> list[str]:
    """Keep the steps that exist in the body; pydantic adds the names of union arms."""
    kept: list[str] = []
    for step in location:
        if isinstance(body, dict) and isinstance(step, str):
            kept.append(step)
            body = body.get(step)
        elif isinstance(body, list) and isinstance(step, int):
            kept.append(str(step))
            body = body[step] if step < len(body) else None
    return kept


def load_filter(name: str) -> ContentFilter | None:
    """Import "module:function"; an empty name means no filter; raises SettingsError."""
    if not name:
        return None
    module, _, function = name.partition(":")
    try:
        found: ContentFilter = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"SPECINFER_CONTENT_FILTER is {name!r}: {error}") from None
    return found
