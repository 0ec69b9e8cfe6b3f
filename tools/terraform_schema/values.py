"""Terraform values on the wire: msgpack with one extension, the value not known yet."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]

from terraform_schema.catalogue import Attribute, Block

UNKNOWN = msgpack.ExtType(0, b"\0")

Fill = Callable[[str, Attribute], Any]


def is_unknown(value: Any) -> bool:
    return isinstance(value, msgpack.ExtType)


def decode(dynamic: Any) -> Any:
    """The value of a DynamicValue message; null for an absent one."""
    if dynamic.msgpack:
        return msgpack.unpackb(dynamic.msgpack, raw=False, strict_map_key=False)
    return json.loads(dynamic.json or b"null")


def encode(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def fill_computed(block: Block, value: Any, fill: Fill) -> Any:
    """`value` with `fill` put wherever the provider is to say the value: unset or unknown."""
    if not isinstance(value, Mapping):
        return value
    filled = dict(value)
    for name, attribute in block.attributes.items():
        current = filled.get(name)
        if is_unknown(current) or (attribute.computed and current is None):
            filled[name] = fill(name, attribute)
    for name, nested in block.blocks.items():
        inner = filled.get(name)
        if isinstance(inner, list):
            filled[name] = [fill_computed(nested.block, item, fill) for item in inner]
        else:
            filled[name] = fill_computed(nested.block, inner, fill)
    return filled
