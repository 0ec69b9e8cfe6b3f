"""Read a provider's schema back out of its published CDK bindings.

The bindings are generated from `terraform providers schema -json`, so nearly all of it is still
there: names, types, what is required, which blocks repeat.  Lost on the way: descriptions,
counts other than 0, 1 and many, and which optional attributes the provider also computes.
"""

import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_SIMPLE: Mapping[str, Any] = {
    "string": "string",
    "number": "number",
    "boolean": "bool",
    "any": "string",
    "stringList": ["list", "string"],
    "numberList": ["list", "number"],
    "stringMap": ["map", "string"],
    "numberMap": ["map", "number"],
    "booleanMap": ["map", "bool"],
    "anyMap": ["map", "string"],
}
_GETTERS: Mapping[str, Any] = {
    "getStringAttribute": "string",
    "getNumberAttribute": "number",
    "getBooleanAttribute": "bool",
    "getListAttribute": ["list", "string"],
    "getNumberListAttribute": ["list", "number"],
    "getStringMapAttribute": ["map", "string"],
    "getNumberMapAttribute": ["map", "number"],
    "getBooleanMapAttribute": ["map", "bool"],
}
_MAPS = {"StringMap": "string", "NumberMap": "number", "BooleanMap": "bool"}
_KINDS = {"Resource": "resource_schemas", "DataSource": "data_source_schemas"}

_ROOT = re.compile(r"class (\w+) extends cdkt[fn]\.Terraform(Resource|DataSource|Provider)\b")
_TYPE_NAME = re.compile(r"terraformResourceType: '([^']+)'")
_CLASS = re.compile(r"^\s*class (\w+) extends [\w.]+ \{\n(.*?)^\s*\w+\[_\w+\] = ", re.M | re.S)
_FUNCTION = re.compile(r"^function (\w+)ToHclTerraform\(struct\) \{\n(.*?)^\}", re.M | re.S)
_SYNTHESIS = re.compile(r"^    synthesizeHclAttributes\(\) \{\n(.*?)^    \}", re.M | re.S)
_SETTABLE = re.compile(
    r"^\s+\"?([a-z0-9_]+)\"?: \{\s*\n\s+value: (.+?),\n\s+isBlock: (true|false),\n"
    r"\s+type: \"(\w+)\",\n\s+storageClassType: \"([^\"]+)\",",
    re.M,
)
_COMPUTED = re.compile(
    r"// ([a-z0-9_]+) - computed: true, optional: false, required: false\s*\n"
    r"(?:\s*get \w+\(\) \{\s*return (?P<getter>[^;]+);"
    r"|\s*this\.\w+ = new (?P<object>[\w.]+)\(this, \"\w+\"(?P<set>, true)?)"
)
_INTERFACE = re.compile(r"^(\s*)(?:export )?interface (\w+)[^{]*\{\n(.*?)^\1\}", re.M | re.S)
_MEMBER = re.compile(r"#([a-z0-9_]+) [\w]+#\1\}.*?\*/\s*readonly \w+(\??):", re.S)


@dataclass(frozen=True, slots=True)
class _Module:
    """One generated file: class bodies, HCL writers, and required members of each interface."""

    root: str
    classes: Mapping[str, str]
    writers: Mapping[str, str]
    required: Mapping[str, frozenset[str]]


def read_bindings(archive: Path) -> Json:
    """The provider schema in the form of `terraform providers schema -json`."""
    schema: Json = {"provider": None, "resource_schemas": {}, "data_source_schemas": {}}
    for script, declarations in _sources(archive):
        root, type_name = _ROOT.search(script), _TYPE_NAME.search(script)
        if root is None or type_name is None:
            continue
        module = _module(root.group(1), script, declarations)
        entry: Json = {"version": 0, "block": _root_block(module, script)}
        if root.group(2) == "Provider":
            del entry["block"]["attributes"]["alias"]  # Terraform's own word, not the provider's
            schema["provider"] = entry
        else:
            entry["block"]["attributes"].setdefault(
                "id", {"type": "string", "optional": True, "computed": True}
            )
            schema[_KINDS[root.group(2)]][type_name.group(1)] = entry
    return schema


def _sources(archive: Path) -> Iterator[tuple[str, str]]:
    texts: dict[str, str] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None and member.name.endswith((".js", ".d.ts")):
                texts[member.name] = file.read().decode()
    for name, text in texts.items():
        if name.endswith(".js"):
            yield text, texts.get(name.removesuffix(".js") + ".d.ts", "")


def _module(root: str, script: str, declarations: str) -> _Module:
    required = {
        name: frozenset(member for member, mark in _MEMBER.findall(body) if not mark)
        for _, name, body in _INTERFACE.findall(declarations)
    }
    return _Module(root, dict(_CLASS.findall(script)), dict(_FUNCTION.findall(script)), required)


def _root_block(module: _Module, script: str) -> Json:
    synthesis = _SYNTHESIS.search(script)
    block = _block(
        module, synthesis.group(1) if synthesis else "", module.required.get(module.root + "Config")
    )
    block["attributes"].update(_computed(module, module.classes.get(module.root, "")))
    return block


def _block(
    module: _Module, writer: str, required: frozenset[str] | None, parents: tuple[str, ...] = ()
) -> Json:
    """Every settable name of one writer; a block that contains itself (WAF) is cut there."""
    block: Json = {"attributes": {}, "block_types": {}}
    for name, value, is_block, kind, storage in _SETTABLE.findall(writer):
        mode = {"required": True} if name in (required or ()) else {"optional": True}
        nested = re.search(r"(\w+)ToHclTerraform", value)
        if is_block == "false" or nested is None or nested[1] not in module.writers:
            block["attributes"][name] = {"type": _type(kind, storage), **mode}
        elif nested[1] not in parents:
            name_of_class = storage.rsplit(".", 1)[-1].removesuffix(
                "" if kind == "struct" else "List"
            )
            inner = _nested_block(module, name_of_class, (*parents, nested[1]))
            _add_nested(block, name, inner, _shape(value, kind), mode)
    return block


def _nested_block(module: _Module, name: str, parents: tuple[str, ...]) -> Json:
    """The block of one class; `parents` are the writers that led here, its own last."""
    inner = _block(module, module.writers[parents[-1]], module.required.get(name), parents)
    inner["attributes"].update(_computed(module, module.classes.get(f"{name}OutputReference", "")))
    return inner


def _shape(value: str, kind: str) -> Json:
    """How often a block may appear, and whether it is a block at all (else an object value)."""
    if "listMapperHcl" in value:
        nesting = "set" if kind == "set" else "list"
        return {"is_block": ", true)(" in value, "nesting_mode": nesting}
    if kind in ("list", "set"):
        return {"is_block": True, "nesting_mode": kind, "max_items": 1}
    return {"is_block": False, "nesting_mode": "single"}


def _add_nested(block: Json, name: str, inner: Json, shape: Json, mode: Json) -> None:
    is_block = shape.pop("is_block") or name == "timeouts"
    if not is_block:
        attributes = inner["attributes"] | _as_attributes(inner["block_types"])
        nested = {"attributes": attributes, **shape}
        block["attributes"][name] = {"nested_type": nested, **mode}
        return
    at_least = {"min_items": 1} if "required" in mode else {}
    block["block_types"][name] = {"block": inner, **shape, **at_least}


def _as_attributes(blocks: Json) -> Json:
    """Blocks inside an object-valued attribute are themselves object-valued attributes."""
    found: Json = {}
    for name, nesting in blocks.items():
        inner = nesting["block"]
        attributes = inner["attributes"] | _as_attributes(inner["block_types"])
        nested = {"attributes": attributes, "nesting_mode": nesting["nesting_mode"]}
        found[name] = {"nested_type": nested, "optional": True}
    return found


def _computed(module: _Module, body: str) -> Json:
    """Attributes that only the provider sets: scalars, collections and lists of objects."""
    return {
        match.group(1): {"type": _computed_type(module, match), "computed": True}
        for match in _COMPUTED.finditer(body)
    }


def _computed_type(module: _Module, match: re.Match[str]) -> Any:
    if match["object"] is None:
        getter = re.search(r"this\.(get\w+)\(", match["getter"])
        kind = _GETTERS.get(getter[1], "string") if getter else "string"
        return ["set", kind[1]] if "tolist" in match["getter"] else kind
    name = match["object"].rsplit(".", 1)[-1]
    if name in _MAPS:
        return ["map", _MAPS[name]]
    element = name.removesuffix("List").removesuffix("OutputReference") + "OutputReference"
    fields = {
        inner.group(1): _computed_type(module, inner)
        for inner in _COMPUTED.finditer(module.classes.get(element, ""))
    }
    if not name.endswith("List"):
        return ["object", fields]
    return ["set" if match["set"] else "list", ["object", fields]]


def _type(kind: str, storage: str) -> Any:
    base = _SIMPLE.get(storage, "string")
    if kind == "simple" or not isinstance(base, list):
        return base
    return [kind, base[1]]
