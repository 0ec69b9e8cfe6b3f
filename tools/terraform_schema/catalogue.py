"""A provider's schema as typed values: attributes, blocks, resource and data source types."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
PROVIDERS = ("aws", "helm", "kubernetes")


@dataclass(frozen=True, slots=True)
class Attribute:
    """One argument or result; `type` is cty's JSON form unless `nested` describes an object."""

    type: Any
    nested: "Nested | None"
    required: bool
    optional: bool
    computed: bool


@dataclass(frozen=True, slots=True)
class Block:
    attributes: Mapping[str, Attribute]
    blocks: Mapping[str, "Nested"]


@dataclass(frozen=True, slots=True)
class Nested:
    """A block, or an object-valued attribute, inside another block."""

    block: Block
    mode: str
    min_items: int = 0
    max_items: int = 0


@dataclass(frozen=True, slots=True)
class ProviderSchema:
    name: str
    version: str
    provider: Block
    resources: Mapping[str, Block]
    data_sources: Mapping[str, Block]


def schema_file(provider: str) -> Path:
    return DATA / f"{provider}.json.gz"


@cache
def load_schema(provider: str) -> ProviderSchema:
    document = json.loads(gzip.decompress(schema_file(provider).read_bytes()))
    return ProviderSchema(
        provider,
        document["version"],
        _block(document["provider"]["block"]),
        {n: _block(s["block"]) for n, s in document["resource_schemas"].items()},
        {n: _block(s["block"]) for n, s in document["data_source_schemas"].items()},
    )


def _block(document: Any) -> Block:
    return Block(
        {n: _attribute(a) for n, a in document["attributes"].items()},
        {n: _nested(b["block"], b) for n, b in document.get("block_types", {}).items()},
    )


def _attribute(document: Any) -> Attribute:
    shape = document.get("nested_type")
    return Attribute(
        document.get("type"),
        _nested(shape, shape) if shape else None,
        document.get("required", False),
        document.get("optional", False),
        document.get("computed", False),
    )


def _nested(block: Any, shape: Any) -> Nested:
    mode = shape["nesting_mode"]
    return Nested(_block(block), mode, shape.get("min_items", 0), shape.get("max_items", 0))
