"""What a body demands of its answer's form, in the words of OpenAI, vLLM and TGI."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from specinfer.errors import ParameterError
from specinfer.grammar.spec import Grammar
from specinfer.server.dialects.common import Body, Neutral, refuse_unsupported
from specinfer.server.errors import RequestError

Schema = dict[str, Any]
UNSUPPORTED: Neutral = {
    "structural_tag": (),
    "whitespace_pattern": (),
    "disable_any_whitespace": (False,),
    "disable_additional_properties": (False,),
}


class NamedSchema(Body):
    """`json_schema` of a response format; its name, description and `strict` change nothing."""

    schema_: Annotated[Schema, Field(alias="schema")]


class ResponseFormat(Body):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    def demands(self) -> Iterator[Grammar]:
        if self.type == "json_object":
            yield Grammar.json_object("response_format")
        if self.type == "json_schema":
            if self.json_schema is None:
                raise ParameterError("response_format.json_schema", "is missing")
            yield Grammar.json_schema(self.json_schema.schema_, "response_format.json_schema")


class StructuredOutputs(Body):
    """vLLM's `structured_outputs`."""

    json_: Annotated[Schema | str | None, Field(alias="json")] = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def demands(self) -> Iterator[Grammar]:
        yield from _demands(
            "structured_outputs.", self.json_, self.regex, self.choice, self.grammar
        )
        if self.json_object:
            yield Grammar.json_object("structured_outputs.json_object")


class FormBody(Body):
    """The keys by which OpenAI's dialects constrain an answer; vLLM's older ones among them."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    def demands(self) -> Iterator[Grammar]:
        for part in (self.response_format, self.structured_outputs):
            yield from part.demands() if part else ()
        yield from _demands(
            "guided_", self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar
        )


class TgiGrammar(Body):
    """TGI's `grammar`: `value` is a schema, a named one, or an expression, as `type` says."""

    type: Literal["json", "json_object", "json_schema", "regex"]
    value: Schema | str

    def demands(self) -> Iterator[Grammar]:
        field, value = "parameters.grammar.value", self.value
        if self.type == "regex":
            if not isinstance(value, str):
                raise ParameterError(field, "must be a string")
            yield Grammar("regex", value, field)
            return
        if self.type == "json_schema" and isinstance(value, dict):
            field, named = f"{field}.schema", value.get("schema")
            if not isinstance(named, dict):
                raise ParameterError(field, "must be an object")
            value = named
        yield _schema(value, field)


def refuse_unsupported_forms(raw: Mapping[str, Any]) -> None:
    """Refuse what a checked body asks of the form beyond FormBody; raises RequestError."""
    refuse_unsupported(raw, {"structural_tag": (), "guided_whitespace_pattern": ()})
    refuse_unsupported(raw.get("structured_outputs") or {}, UNSUPPORTED, "structured_outputs.")


def only(demands: Iterable[Grammar]) -> Grammar | None:
    """Return the one demand of a body, or None; raises RequestError naming the field."""
    try:
        found = list(demands)
        if len(found) > 1:
            raise ParameterError(found[1].field, f"cannot be combined with {found[0].field}")
    except ParameterError as error:
        raise RequestError(400, "invalid_parameter", str(error), field=error.field) from None
    return found[0] if found else None


def _demands(
    prefix: str,
    schema: Schema | str | None,
    regex: str | None,
    choice: list[str] | None,
    rules: str | None,
) -> Iterator[Grammar]:
    if schema is not None:
        yield _schema(schema, f"{prefix}json")
    if regex is not None:
        yield Grammar("regex", regex, f"{prefix}regex")
    if choice is not None:
        yield Grammar.choice(choice, f"{prefix}choice")
    if rules is not None:
        yield Grammar("ebnf", rules, f"{prefix}grammar")


def _schema(schema: Schema | str, field: str) -> Grammar:
    """Take a schema as an object or as its JSON."""
    if isinstance(schema, str):
        return Grammar("json_schema", schema, field)
    return Grammar.json_schema(schema, field)
