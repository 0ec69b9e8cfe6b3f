"""The schema provider by itself: what was read back, how it is run, where its values come from."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from terraform_schema import aws_api, fakes
from terraform_schema.catalogue import PROVIDERS, load_schema
from terraform_schema.policies import statements
from terraform_schema.workspace import Applied


def test_facts_of_the_provider_survived_the_way_through_its_bindings() -> None:
    aws = load_schema("aws")
    assert aws.version == "6.62.0"
    function = aws.resources["aws_lambda_function"]
    assert function.attributes["role"].required
    assert function.attributes["architectures"].type == ["list", "string"]
    assert function.attributes["invoke_arn"].computed
    assert not function.attributes["invoke_arn"].optional
    ttl = aws.resources["aws_dynamodb_table"].blocks["ttl"]
    assert (ttl.mode, ttl.min_items, ttl.max_items) == ("list", 0, 1)
    variants = aws.resources["aws_sagemaker_endpoint_configuration"].blocks["production_variants"]
    assert (variants.min_items, variants.max_items) == (1, 0)
    cluster = aws.resources["aws_eks_cluster"]
    assert cluster.attributes["identity"].type == [
        "list",
        ["object", {"oidc": ["list", ["object", {"issuer": "string"}]]}],
    ]


def test_helm_3_takes_a_list_where_helm_2_took_blocks() -> None:
    release = load_schema("helm").resources["helm_release"]
    nested = release.attributes["set"].nested
    assert nested is not None and nested.mode == "list"
    assert "set" not in release.blocks


def test_the_data_is_small_enough_to_keep(repository: Path) -> None:
    data = repository / "tools" / "terraform_schema" / "data"
    assert sum(f.stat().st_size for f in data.iterdir()) < 200_000
    assert {f"{name}.json.gz" for name in PROVIDERS} <= {f.name for f in data.iterdir()}


@pytest.mark.parametrize("type_name", sorted(aws_api.CREATED_BY))
def test_every_type_has_its_create_operation(type_name: str) -> None:
    service, operation = aws_api.CREATED_BY[type_name]
    assert operation in aws_api.service_model(service).operation_names
    assert type_name in load_schema("aws").resources


def test_what_is_taken_for_immutable_has_no_update_operation() -> None:
    for service, operation in aws_api.IMMUTABLE.values():
        assert operation not in aws_api.service_model(service).operation_names


def test_limits_of_the_api_are_found_in_nested_blocks() -> None:
    variant = {"variant_name": "main", "instance_type": "ml.g99.xlarge"}
    (finding,) = aws_api.findings(
        "aws_sagemaker_endpoint_configuration", {"production_variants": [variant]}
    )
    assert finding.path == ("production_variants", 0, "instance_type")


def test_invented_values_are_the_same_in_every_run() -> None:
    attribute = load_schema("aws").resources["aws_iam_role"].attributes["arn"]
    values = {"name": "gateway"}
    twice = [fakes.resource("aws_iam_role", values)("arn", attribute) for _ in range(2)]
    assert twice == ["arn:aws:iam::123456789012:role/gateway"] * 2


def run(repository: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m terraform_schema`, as docs/terraform.md tells."""
    return subprocess.run(
        [sys.executable, "-m", "terraform_schema", *command],
        cwd=repository,
        env=os.environ | {"PYTHONPATH": "tools", "TF_CLI_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_runs_between_the_providers(repository: Path, terraform: str) -> None:
    done = run(repository, "terraform", "fmt", "-check", "-recursive", "terraform")
    assert (done.returncode, done.stdout) == (0, "")
    assert run(repository, sys.executable, "-c", "raise SystemExit(3)").returncode == 3


def test_without_a_command_it_says_how(repository: Path) -> None:
    done = run(repository)
    assert done.returncode == 2
    assert "python -m terraform_schema terraform" in done.stderr


# What the gateway calls, and the permission that each call needs.
# https://docs.aws.amazon.com/service-authorization/latest/reference/
PERMISSIONS = {
    "delete_item": "dynamodb:DeleteItem",
    "delete_object": "s3:DeleteObject",
    "get_item": "dynamodb:GetItem",
    "get_object": "s3:GetObject",
    "get_secret_value": "secretsmanager:GetSecretValue",
    "invoke_endpoint": "sagemaker:InvokeEndpoint",
    "invoke_endpoint_async": "sagemaker:InvokeEndpointAsync",
    "invoke_endpoint_with_response_stream": "sagemaker:InvokeEndpointWithResponseStream",
    "put_item": "dynamodb:PutItem",
    "put_object": "s3:PutObject",
    "update_item": "dynamodb:UpdateItem",
}


def test_the_gateway_may_do_what_it_does_and_little_more(repository: Path, medium: Applied) -> None:
    source = "".join(f.read_text() for f in (repository / "lambda").rglob("*.py"))
    called = {action for call, action in PERMISSIONS.items() if f".{call}(" in source}
    role = medium.one("module.gateway.aws_iam_role_policy.this")
    allowed = {a for s in statements([role]) for a in s.actions}
    assert called <= allowed
    # Besides its calls: keys, logs, traces, the network, and 404 instead of 403 from S3.
    others = {a for a in allowed if a.split(":")[0] not in ("ec2", "kms", "logs", "xray")}
    assert others - {"s3:ListBucket"} == called
