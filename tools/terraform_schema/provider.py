"""A Terraform provider that knows a schema and nothing else: it plans, and pretends to apply.

Terraform itself checks names, types and counts against the schema.  On top of that, this refuses
what the real provider refuses and a schema cannot say: setting a computed attribute, values the
AWS API does not take, and a second live object of the same name.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from terraform_schema import fakes
from terraform_schema.aws_api import IMMUTABLE, Finding, findings
from terraform_schema.catalogue import Attribute, Block, Nested, ProviderSchema
from terraform_schema.values import UNKNOWN, decode, encode, fill_computed, is_unknown

# Terraform's Schema.NestedBlock.NestingMode; objects use the same numbers.
_NESTING = {"single": 1, "list": 2, "set": 3, "map": 4}
_ERROR = 1


class SchemaProvider:
    """The protocol's methods; each takes a request message and returns a response message."""

    def __init__(self, schema: ProviderSchema, messages: Mapping[str, Any]) -> None:
        self._schema = schema
        self._messages = messages
        self._default_tags: dict[str, str] = {}
        self._live: set[tuple[str, str]] = set()
        self._schema_response = self._describe()

    def GetProviderSchema(self, request: Any) -> Any:
        return self._schema_response

    def ValidateProviderConfig(self, request: Any) -> Any:
        return self._messages["Diagnostics"]()

    def ConfigureProvider(self, request: Any) -> Any:
        tags = (decode(request.config) or {}).get("default_tags") or []
        self._default_tags = dict(tags[0].get("tags") or {}) if tags else {}
        return self._messages["Diagnostics"]()

    def ValidateResourceConfig(self, request: Any) -> Any:
        values = decode(request.config)
        block = self._schema.resources[request.type_name]
        found = [*_computed_but_set(block, values, ()), *findings(request.type_name, values)]
        return self._messages["Diagnostics"](diagnostics=[self._diagnostic(f) for f in found])

    def ValidateDataResourceConfig(self, request: Any) -> Any:
        return self._messages["Diagnostics"]()

    def UpgradeResourceState(self, request: Any) -> Any:
        state = self._messages["DynamicValue"](json=request.raw_state.json)
        return self._messages["UpgradeResponse"](upgraded_state=state)

    def ReadResource(self, request: Any) -> Any:
        values = decode(request.current_state)
        if values:
            self._live.add((request.type_name, _name(values)))
        return self._messages["ReadResponse"](new_state=request.current_state)

    def PlanResourceChange(self, request: Any) -> Any:
        prior, planned = decode(request.prior_state), decode(request.proposed_new_state)
        response = self._messages["PlanResponse"]()
        if planned is not None:
            if prior is None:
                block = self._schema.resources[request.type_name]
                planned = fill_computed(block, planned, lambda name, attribute: UNKNOWN)
            if "tags_all" in planned:
                planned["tags_all"] = self._all_tags(planned["tags"])
            for name in _replacing(request.type_name, prior, planned):
                response.requires_replace.add().steps.add(attribute_name=name)
        response.planned_state.msgpack = encode(planned)
        return response

    def ApplyResourceChange(self, request: Any) -> Any:
        prior, planned = decode(request.prior_state), decode(request.planned_state)
        if planned is None:
            self._live.discard((request.type_name, _name(prior)))
            return self._applied(None)
        fill = fakes.resource(request.type_name, planned)
        state = fill_computed(self._schema.resources[request.type_name], planned, fill)
        identity = (request.type_name, _name(state))
        if prior is None and request.type_name in IMMUTABLE:
            if identity in self._live:
                message = f"{identity[1]!r} already exists: it must be gone before this is made"
                return self._refused(Finding(("name",), message))
            self._live.add(identity)
        return self._applied(state)

    def ReadDataSource(self, request: Any) -> Any:
        values = decode(request.config)
        fill = fakes.data_source(request.type_name, values)
        state = fill_computed(self._schema.data_sources[request.type_name], values, fill)
        return self._messages["DataResponse"](state={"msgpack": encode(state)})

    def StopProvider(self, request: Any) -> Any:
        return self._messages["StopResponse"]()

    def _applied(self, state: Any) -> Any:
        return self._messages["ApplyResponse"](new_state={"msgpack": encode(state)})

    def _refused(self, finding: Finding) -> Any:
        response = self._applied(None)
        response.diagnostics.append(self._diagnostic(finding))
        return response

    def _all_tags(self, tags: Any) -> Any:
        return UNKNOWN if is_unknown(tags) else self._default_tags | (tags or {})

    def _diagnostic(self, finding: Finding) -> Any:
        message = self._messages["Diagnostic"](
            severity=_ERROR, summary="Refused by AWS", detail=finding.message
        )
        for step in finding.path:
            if isinstance(step, int):
                message.attribute.steps.add(element_key_int=step)
            else:
                message.attribute.steps.add(attribute_name=step)
        return message

    def _describe(self) -> Any:
        response = self._messages["SchemaResponse"]()
        _write_block(response.provider.block, self._schema.provider)
        for name, block in self._schema.resources.items():
            _write_block(response.resource_schemas[name].block, block)
        for name, block in self._schema.data_sources.items():
            _write_block(response.data_source_schemas[name].block, block)
        return response


def _computed_but_set(
    block: Block, values: Mapping[str, Any], path: tuple[str | int, ...]
) -> Iterator[Finding]:
    for name, attribute in block.attributes.items():
        settable = attribute.optional or attribute.required
        if values.get(name) is not None and not settable:
            yield Finding((*path, name), f"{name} is computed by AWS; it cannot be set")
    for name, nested in block.blocks.items():
        inner = values.get(name)
        for index, item in enumerate(inner if isinstance(inner, list) else ()):
            if isinstance(item, Mapping):
                yield from _computed_but_set(nested.block, item, (*path, name, index))


def _replacing(type_name: str, prior: Any, planned: Mapping[str, Any]) -> list[str]:
    if prior is None or type_name not in IMMUTABLE:
        return []
    return [n for n in planned if planned[n] != prior.get(n) and n not in ("tags", "tags_all")]


def _name(values: Mapping[str, Any]) -> str:
    return str(values.get("name"))


def _write_block(message: Any, block: Block) -> None:
    message.SetInParent()
    for name, attribute in sorted(block.attributes.items()):
        _write_attribute(message.attributes.add(), name, attribute)
    for name, nested in sorted(block.blocks.items()):
        child = message.block_types.add(type_name=name, nesting=_NESTING[nested.mode])
        child.min_items, child.max_items = nested.min_items, nested.max_items
        _write_block(child.block, nested.block)


def _write_attribute(message: Any, name: str, attribute: Attribute) -> None:
    message.name = name
    message.required, message.optional = attribute.required, attribute.optional
    message.computed = attribute.computed
    if attribute.nested is None:
        message.type = json.dumps(attribute.type).encode()
    else:
        _write_object(message.nested_type, attribute.nested)


def _write_object(message: Any, nested: Nested) -> None:
    message.nesting = _NESTING[nested.mode]
    for name, attribute in sorted(nested.block.attributes.items()):
        _write_attribute(message.attributes.add(), name, attribute)
