"""Plausible values for what only AWS can say: ARNs, ids, endpoints, zones.

They are functions of the resource's type and arguments alone, so two runs give the same state.
"""

import base64
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
# Words of resource types whose service is called otherwise in ARNs.
_ARN_SERVICE = {"api": "apigateway", "security": "ec2", "subnet": "ec2", "vpc": "ec2"}
# ARNs that other services take apart or check the form of.
_ARN_FORM = {
    "aws_iam_role": "arn:aws:iam::{account}:role/{label}",
    "aws_iam_policy": "arn:aws:iam::{account}:policy/{label}",
    "aws_s3_bucket": "arn:aws:s3:::{label}",
    "aws_kms_key": "arn:aws:kms:{region}:{account}:key/{label}",
    "aws_sagemaker_endpoint": "arn:aws:sagemaker:{region}:{account}:endpoint/{label}",
    "aws_dynamodb_table": "arn:aws:dynamodb:{region}:{account}:table/{label}",
    "aws_cloudwatch_log_group": "arn:aws:logs:{region}:{account}:log-group:{label}",
    "aws_lambda_function": "arn:aws:lambda:{region}:{account}:function:{label}",
    "aws_ecr_repository": "arn:aws:ecr:{region}:{account}:repository/{label}",
}
# The network's things have ids, and names only as tags.
_ID_PREFIX = {
    "aws_eip": "eipalloc",
    "aws_internet_gateway": "igw",
    "aws_nat_gateway": "nat",
    "aws_route_table": "rtb",
    "aws_security_group": "sg",
    "aws_subnet": "subnet",
    "aws_vpc": "vpc",
    "aws_vpc_endpoint": "vpce",
}
_NAMES = ("name", "function_name", "bucket", "identifier", "cluster_name")


def data_source(type_name: str, values: Mapping[str, Any]) -> Fill:
    known = _DATA_SOURCES.get(type_name, {})
    other = resource(type_name, values)
    return lambda name, attribute: known.get(name, other(name, attribute))


def resource(type_name: str, values: Mapping[str, Any]) -> Fill:
    """A fill for one resource; its name is part of its ARN, as with AWS."""
    digest = hashlib.sha256(f"{type_name} {_stable(values)}".encode()).hexdigest()[:12]
    label = _label(values, digest)
    form = _ARN_FORM.get(
        type_name, f"arn:aws:{_service(type_name)}:{{region}}:{{account}}:{{label}}"
    )

    def fill(name: str, attribute: Attribute) -> Any:
        if name == "arn" or name.endswith("_arn"):
            return form.format(region=REGION, account=ACCOUNT, label=label)
        prefix = values.get(f"{name}_prefix")
        if isinstance(prefix, str):
            return f"{prefix}{digest}"
        if name == "id" and type_name in _ID_PREFIX:
            return f"{_ID_PREFIX[type_name]}-{digest}"
        if name.endswith("security_group_id"):
            return f"sg-{digest}"
        if name == "id" and label != digest:
            return label
        return _example(attribute.type, f"{name}-{digest}")

    return fill


def _label(values: Mapping[str, Any], digest: str) -> str:
    """What AWS calls the resource: the name given, one made from a prefix, or an invented one."""
    for name in _NAMES:
        if isinstance(values.get(name), str):
            return str(values[name])
        if isinstance(values.get(f"{name}_prefix"), str):
            return f"{values[f'{name}_prefix']}{digest}"
    return digest


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
            return [_example(["object", fields], text)]
        case ["object", fields]:
            return {name: _field(name, inner, text) for name, inner in fields.items()}
        case [("list" | "set"), _]:
            return []
        case ["map", _]:
            return {}
    return None


def _field(name: str, kind: Any, text: str) -> Any:
    if name == "data":  # of a certificate authority: base64
        return base64.b64encode(text.encode()).decode()
    return _example(kind, f"{name}-{text}")
