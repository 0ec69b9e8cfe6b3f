"""Plausible values for what only AWS can say: ARNs, ids, endpoints, zones.

They are functions of the resource's type and arguments alone, so two runs give the same state.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from terraform_schema.aws_api import CREATED_BY
from terraform_schema.catalogue import Attribute
from terraform_schema.values import Fill, is_unknown

ACCOUNT = "123456789012"
REGION = "us-east-1"

# What AWS answers for every account, whatever the arguments.
_DATA_SOURCES: Mapping[str, Mapping[str, Any]] = {
    "aws_availability_zones": {"names": [f"{REGION}{zone}" for zone in "abc"]},
    "aws_caller_identity": {
        "account_id": ACCOUNT,
        "arn": f"arn:aws:iam::{ACCOUNT}:user/terraform",
    },
    "aws_partition": {"partition": "aws", "dns_suffix": "amazonaws.com"},
    "aws_region": {"region": REGION, "name": REGION},
}
# Service names in ARNs that differ from the first word of the resource type.
_ARN_SERVICE = {
    "api": "apigateway",
    "ce": "ce",
    "cloudwatch": "cloudwatch",
    "secretsmanager": "secretsmanager",
    "security": "ec2",
    "subnet": "ec2",
    "vpc": "ec2",
}
_NAMES = ("name", "function_name", "bucket", "identifier", "cluster_name")


def data_source(type_name: str, values: Mapping[str, Any]) -> Fill:
    known = _DATA_SOURCES.get(type_name, {})
    other = resource(type_name, values)
    return lambda name, attribute: known.get(name, other(name, attribute))


def resource(type_name: str, values: Mapping[str, Any]) -> Fill:
    """A fill for one resource; its name is part of its ARN, as with AWS."""
    digest = hashlib.sha256(f"{type_name} {_stable(values)}".encode()).hexdigest()[:12]
    label = next((str(values[n]) for n in _NAMES if isinstance(values.get(n), str)), digest)

    def fill(name: str, attribute: Attribute) -> Any:
        if name == "arn" or name.endswith("_arn"):
            return f"arn:aws:{_service(type_name)}:{REGION}:{ACCOUNT}:{label}"
        prefix = values.get(f"{name}_prefix")
        if isinstance(prefix, str):
            return f"{prefix}{digest}"
        if name == "id" and label != digest:
            return label
        return _example(attribute.type, f"{name}-{digest}")

    return fill


def _stable(values: Mapping[str, Any]) -> str:
    known = {n: "?" if is_unknown(v) else v for n, v in values.items()}
    return json.dumps(known, sort_keys=True, default=str)


def _service(type_name: str) -> str:
    if type_name in CREATED_BY:
        return CREATED_BY[type_name][0]
    word = type_name.split("_")[1]
    return _ARN_SERVICE.get(word, word)


def _example(kind: Any, text: str) -> Any:
    """A value of a cty type; collections of objects get one element, so `[0]` works."""
    match kind:
        case "string":
            return text
        case "number":
            return 1
        case "bool":
            return False
        case [("list" | "set"), ["object", fields]]:
            return [{name: _example(inner, f"{name}-{text}") for name, inner in fields.items()}]
        case ["object", fields]:
            return {name: _example(inner, f"{name}-{text}") for name, inner in fields.items()}
        case [("list" | "set"), _]:
            return []
        case ["map", _]:
            return {}
    return None
