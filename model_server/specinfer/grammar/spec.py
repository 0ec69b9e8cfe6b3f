"""What a request may demand of its answer's form, before anything is compiled."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from specinfer.errors import ParameterError

Kind = Literal["json_schema", "regex", "choice", "ebnf"]

# The slowest schema found of this length, one optional property after another, compiles in 1.2 s.
MAX_CHARACTERS = 1 << 16
MAX_CHOICES = 1000


@dataclass(frozen=True, slots=True)
class Grammar:
    """A JSON schema, a regular expression, a list of choices, or rules (Lark or GBNF), as text.

    `field` is what the request called it, for messages.  Raises ParameterError when it is too
    long; whether it makes sense is told when it is compiled.
    """

    kind: Kind
    text: str
    field: str = field(default="grammar", compare=False)

    def __post_init__(self) -> None:
        if len(self.text) > MAX_CHARACTERS:
            limit = f"must have at most {MAX_CHARACTERS} characters, got {len(self.text)}"
            raise ParameterError(self.field, limit)

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool, field: str = "grammar") -> "Grammar":
        """Take a schema as it stands: properties are generated in its own order."""
        return cls("json_schema", json.dumps(schema), field)

    @classmethod
    def json_object(cls, field: str = "grammar") -> "Grammar":
        return cls.json_schema({"type": "object"}, field)

    @classmethod
    def choice(cls, choices: Sequence[str], field: str = "grammar") -> "Grammar":
        """Raises ParameterError unless there are between one and MAX_CHOICES."""
        if not 1 <= len(choices) <= MAX_CHOICES:
            raise ParameterError(field, f"must name 1 to {MAX_CHOICES} choices, got {len(choices)}")
        return cls("choice", json.dumps(list(choices)), field)
