"""Messages of Terraform's plugin protocol 6, as far as a provider of schemas needs them.

Only the fields used here are declared: protobuf skips the others.  Names and numbers follow
Terraform's docs/plugin-protocol/tfplugin6.0.proto.  Request messages are flat because only
the method's path and the field numbers travel.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

SERVICE = "tfplugin6.Provider"

# "name type number" per field; "*" repeats, "%" is a map from string.
_MESSAGES: Mapping[str, str] = {
    "DynamicValue": "msgpack bytes 1, json bytes 2",
    "Step": "attribute_name string 1, element_key_string string 2, element_key_int int64 3",
    "AttributePath": "steps *Step 1",
    "Diagnostic": "severity int64 1, summary string 2, detail string 3, attribute AttributePath 4",
    "Attribute": "name string 1, type bytes 2, required bool 4, optional bool 5, "
    "computed bool 6, nested_type Object 10",
    "Object": "attributes *Attribute 1, nesting int64 3",
    "Block": "attributes *Attribute 2, block_types *NestedBlock 3",
    "NestedBlock": "type_name string 1, block Block 2, nesting int64 3, min_items int64 4, "
    "max_items int64 5",
    "Schema": "version int64 1, block Block 2",
    "Nothing": "",
    "SchemaResponse": "provider Schema 1, resource_schemas %Schema 2, "
    "data_source_schemas %Schema 3",
    "ProviderConfig": "config DynamicValue 1",
    "ConfigureRequest": "terraform_version string 1, config DynamicValue 2",
    "TypedConfig": "type_name string 1, config DynamicValue 2",
    "Diagnostics": "diagnostics *Diagnostic 1",
    "RawState": "json bytes 1",
    "UpgradeRequest": "type_name string 1, version int64 2, raw_state RawState 3",
    "UpgradeResponse": "upgraded_state DynamicValue 1, diagnostics *Diagnostic 2",
    "ReadRequest": "type_name string 1, current_state DynamicValue 2, private bytes 3",
    "ReadResponse": "new_state DynamicValue 1, diagnostics *Diagnostic 2, private bytes 3",
    "PlanRequest": "type_name string 1, prior_state DynamicValue 2, "
    "proposed_new_state DynamicValue 3, config DynamicValue 4",
    "PlanResponse": "planned_state DynamicValue 1, requires_replace *AttributePath 2, "
    "planned_private bytes 3, diagnostics *Diagnostic 4",
    "ApplyRequest": "type_name string 1, prior_state DynamicValue 2, "
    "planned_state DynamicValue 3, config DynamicValue 4",
    "ApplyResponse": "new_state DynamicValue 1, private bytes 2, diagnostics *Diagnostic 3",
    "DataResponse": "state DynamicValue 1, diagnostics *Diagnostic 2",
    "StopResponse": "error string 1",
}

# Method -> (request, response).
METHODS: Mapping[str, tuple[str, str]] = {
    "GetProviderSchema": ("Nothing", "SchemaResponse"),
    "ValidateProviderConfig": ("ProviderConfig", "Diagnostics"),
    "ValidateResourceConfig": ("TypedConfig", "Diagnostics"),
    "ValidateDataResourceConfig": ("TypedConfig", "Diagnostics"),
    "UpgradeResourceState": ("UpgradeRequest", "UpgradeResponse"),
    "ConfigureProvider": ("ConfigureRequest", "Diagnostics"),
    "ReadResource": ("ReadRequest", "ReadResponse"),
    "PlanResourceChange": ("PlanRequest", "PlanResponse"),
    "ApplyResourceChange": ("ApplyRequest", "ApplyResponse"),
    "ReadDataSource": ("TypedConfig", "DataResponse"),
    "StopProvider": ("Nothing", "StopResponse"),
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bytes": _Field.TYPE_BYTES,
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int64": _Field.TYPE_INT64,
}


def messages() -> Mapping[str, Any]:
    """The message classes by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tfplugin6_part.proto", package="tfplugin6", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in filter(None, fields.split(", ")):
            _add_field(message, *field.split())
        if name == "Step":
            _one_of(message)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix("tfplugin6."): cls for name, cls in classes.items()}


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, kind: str, number: str) -> None:
    if kind.startswith("%"):
        entry = message.nested_type.add(name=_entry_name(name))
        entry.options.map_entry = True
        _add_field(entry, "key", "string", "1")
        _add_field(entry, "value", kind[1:], "2")
        kind = f"*{message.name}.{entry.name}"
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.startswith("*"):
        field.label = _Field.LABEL_REPEATED
    kind = kind.removeprefix("*")
    field.type = _SCALARS.get(kind, _Field.TYPE_MESSAGE)
    if field.type == _Field.TYPE_MESSAGE:
        field.type_name = f".tfplugin6.{kind}"


def _entry_name(field: str) -> str:
    return "".join(word.title() for word in field.split("_")) + "Entry"


def _one_of(step: descriptor_pb2.DescriptorProto) -> None:
    """A step carries exactly one selector, so index 0 is told from no index."""
    step.oneof_decl.add(name="selector")
    for field in step.field:
        field.oneof_index = 0
