"""A new model, image or setting: new configuration first, endpoint moved in place, old one gone."""

from collections.abc import Callable
from typing import Any

import pytest
from terraform_schema.workspace import Applied, TerraformError, Workspace


def actions(plan: Any, type_name: str) -> list[str]:
    (change,) = (c for c in plan["resource_changes"] if c["type"] == type_name)
    return list(change["change"]["actions"])


@pytest.mark.parametrize(
    "change",
    [
        "-var=model_revision=1111111111111111",
        "-var=image_tag=0.2.0",
        '-var=server_settings={SPECINFER_MAX_BATCH="8"}',
    ],
)
def test_a_change_replaces_the_configuration_and_updates_the_endpoint(
    small: Applied, change: str
) -> None:
    plan = small.workspace.plan("-var-file=example.tfvars", change)
    assert actions(plan, "aws_sagemaker_model") == ["create", "delete"]
    assert actions(plan, "aws_sagemaker_endpoint_configuration") == ["create", "delete"]
    assert actions(plan, "aws_sagemaker_endpoint") == ["update"]


def test_switching_off_removes_what_costs_and_keeps_the_rest(small: Applied) -> None:
    plan = small.workspace.plan("-var-file=example.tfvars", "-var=enable_endpoint=false")
    gone = {c["type"] for c in plan["resource_changes"] if c["change"]["actions"] == ["delete"]}
    assert {
        "aws_sagemaker_endpoint",
        "aws_sagemaker_endpoint_configuration",
        "aws_sagemaker_model",
    } <= gone
    assert gone.isdisjoint({"aws_s3_bucket", "aws_dynamodb_table", "aws_lambda_function"})


def test_the_roll_is_applied_without_a_name_conflict(
    new_workspace: Callable[[str], Workspace],
) -> None:
    workspace = new_workspace("small")
    name = ("-var=environment=roll", "-var-file=example.tfvars")
    workspace.plan(*name)
    workspace.apply_plan()
    workspace.plan(*name, "-var=model_revision=1111111111111111")
    state = workspace.apply_plan()
    assert "1111111111111111" in str(state)


def test_a_fixed_configuration_name_would_conflict(
    new_workspace: Callable[[str], Workspace],
) -> None:
    """hashicorp/terraform-provider-aws#21811: the seed article's fixed name cannot be rolled."""
    workspace = new_workspace("small")
    file = workspace.stack.parent / "modules" / "model_endpoint" / "main.tf"
    file.write_text(
        file.read_text().replace('name_prefix = "${var.name}-"\n  kms', 'name = "fixed"\n  kms')
    )
    name = ("-var=environment=fixed", "-var-file=example.tfvars")
    workspace.plan(*name)
    workspace.apply_plan()
    workspace.plan(*name, "-var=model_revision=1111111111111111")
    with pytest.raises(TerraformError, match="already exists"):
        workspace.apply_plan()


def test_an_update_that_fails_rolls_itself_back(small: Applied) -> None:
    (deployment,) = small.one("aws_sagemaker_endpoint.this").values["deployment_config"]
    (alarms,) = (a["alarms"] for a in deployment["auto_rollback_configuration"])
    assert alarms == [{"alarm_name": "specinfer-small-endpoint-5xx"}]


def test_the_container_may_take_its_time_to_start(small: Applied) -> None:
    (variant,) = small.one("aws_sagemaker_endpoint_configuration.this").values["production_variants"]
    assert variant["container_startup_health_check_timeout_in_seconds"] == 900
    assert variant["model_data_download_timeout_in_seconds"] == 900
    assert variant["inference_ami_version"] == "al2023-ami-sagemaker-inference-gpu-4-1"
