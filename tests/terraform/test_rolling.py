"""A new model, image or setting: new configuration first, endpoint moved in place, old one gone."""

from collections.abc import Callable
from typing import Any

import pytest

from terraform_schema.workspace import Applied, TerraformError, Workspace


def actions(plan: Any, type_name: str) -> list[str]:
    (change,) = (c for c in plan["resource_changes"] if c["type"] == type_name)
    return list(change["change"]["actions"])


@pytest.fixture(scope="module")
def running(new_root: Callable[[str], Workspace]) -> Workspace:
    """An endpoint that is up."""
    workspace = new_root("endpoint")
    workspace.plan("-var=name=running")
    workspace.apply_plan()
    return workspace


@pytest.mark.parametrize("change", ["revision=1111", "image_tag=0.2.0", "batch=8"])
def test_a_change_replaces_the_configuration_and_updates_the_endpoint(
    running: Workspace, change: str
) -> None:
    plan = running.plan("-refresh=false", "-var=name=running", f"-var={change}")
    assert actions(plan, "aws_sagemaker_model") == ["create", "delete"]
    assert actions(plan, "aws_sagemaker_endpoint_configuration") == ["create", "delete"]
    assert actions(plan, "aws_sagemaker_endpoint") == ["update"]


def test_switching_off_removes_what_costs_by_the_hour(running: Workspace) -> None:
    plan = running.plan("-refresh=false", "-var=name=running", "-var=enabled=false")
    gone = {c["type"] for c in plan["resource_changes"] if c["change"]["actions"] == ["delete"]}
    assert gone == {
        "aws_sagemaker_endpoint",
        "aws_sagemaker_endpoint_configuration",
        "aws_sagemaker_model",
    }


def roll(workspace: Workspace, name: str) -> str:
    """Bring an endpoint up, then give it another model; returns the state."""
    workspace.plan(f"-var=name={name}")
    workspace.apply_plan()
    workspace.plan(f"-var=name={name}", "-var=revision=1111")
    return str(workspace.apply_plan())


def test_the_roll_is_applied_without_a_name_conflict(
    new_root: Callable[[str], Workspace],
) -> None:
    assert "s3://models/models/1111/" in roll(new_root("endpoint"), "rolled")


def test_a_fixed_configuration_name_would_conflict(
    new_root: Callable[[str], Workspace],
) -> None:
    """hashicorp/terraform-provider-aws#21811: a fixed name cannot be rolled."""
    workspace = new_root("endpoint")
    file = workspace.stack / ".." / "terraform" / "modules" / "model_endpoint" / "main.tf"
    text = file.read_text()
    file.write_text(text.replace('  name_prefix = "${var.name}-"\n', '  name = "fixed"\n'))
    with pytest.raises(TerraformError, match="already exists"):
        roll(workspace, "fixed")


def test_an_update_that_fails_rolls_itself_back(small: Applied) -> None:
    (deployment,) = small.one("aws_sagemaker_endpoint.this").values["deployment_config"]
    (alarms,) = (a["alarms"] for a in deployment["auto_rollback_configuration"])
    assert alarms == [{"alarm_name": "specinfer-small-endpoint-5xx"}]


def test_the_container_may_take_its_time_to_start(small: Applied) -> None:
    (variant,) = small.one("aws_sagemaker_endpoint_configuration.this").values[
        "production_variants"
    ]
    assert variant["container_startup_health_check_timeout_in_seconds"] == 900
    assert variant["model_data_download_timeout_in_seconds"] == 900
    assert variant["inference_ami_version"] == "al2023-ami-sagemaker-inference-gpu-4-1"
