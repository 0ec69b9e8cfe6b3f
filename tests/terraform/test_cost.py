"""The cost list, as far as Terraform does it: budgets, tags, schedules, storage, endpoints."""

import json

import pytest

from terraform_schema.workspace import Applied, Workspace

TAGS = {"Project": "specinfer", "Owner": "ml-platform"}


def test_everything_that_takes_tags_has_the_three(stack: Applied) -> None:
    tagged = [r for r in stack.resources if r.type.startswith("aws_") and "tags_all" in r.values]
    assert len(tagged) > 30
    for resource in tagged:
        wanted = TAGS | {"Environment": stack.name}
        assert wanted.items() <= (resource.values["tags_all"] or {}).items(), resource.address


def test_nodes_that_karpenter_starts_have_them_too(large: Applied) -> None:
    values = large.one("helm_release.node_pools").values["values"][0]
    for name, value in TAGS.items():
        assert f'"{name}": "{value}"' in values


def test_the_budget_tells_at_80_percent_and_by_forecast(stack: Applied) -> None:
    budget = stack.one("aws_budgets_budget.this").values
    (filter_,) = budget["cost_filter"]
    assert filter_ == {"name": "TagKeyValue", "values": ["user:Project$specinfer"]}
    told = {(n["notification_type"], n["threshold"]) for n in budget["notification"]}
    assert told == {("ACTUAL", 80), ("FORECASTED", 100)}
    assert all(n["subscriber_sns_topic_arns"] for n in budget["notification"])


def test_the_topic_takes_what_budgets_and_anomalies_send(stack: Applied) -> None:
    (policy,) = (r for r in stack.of_type("aws_sns_topic_policy"))
    (statement,) = json.loads(policy.values["policy"])["Statement"]
    assert {"budgets.amazonaws.com", "costalerts.amazonaws.com"} <= set(
        statement["Principal"]["Service"]
    )


def test_anomalies_of_this_project_are_told(stack: Applied) -> None:
    monitor = stack.one("aws_ce_anomaly_monitor.this").values
    assert json.loads(monitor["monitor_specification"])["Tags"]["Values"] == ["specinfer"]
    subscription = stack.one("aws_ce_anomaly_subscription.this").values
    assert subscription["monitor_arn_list"] == [monitor["arn"]]


def test_cost_allocation_tags_are_the_payers_choice(small: Applied) -> None:
    assert small.of_type("aws_ce_cost_allocation_tag") == []


def test_models_move_to_intelligent_tiering_at_once(stack: Applied) -> None:
    life = stack.one("module.model_store.module.bucket.aws_s3_bucket_lifecycle_configuration.this")
    (rule,) = life.values["rule"]
    (transition,) = rule["transition"]
    assert (transition["days"], transition["storage_class"]) == (0, "INTELLIGENT_TIERING")


def test_old_trails_move_to_glacier_and_end(stack: Applied) -> None:
    (life,) = (
        r.values
        for r in stack.of_type("aws_s3_bucket_lifecycle_configuration")
        if "module.audit" in r.address
    )
    (rule,) = life["rule"]
    assert rule["transition"][0]["storage_class"] == "GLACIER_IR"
    assert rule["expiration"][0]["days"] == 365


def test_aws_is_reached_through_endpoints(small: Applied, large: Applied) -> None:
    def services(stack: Applied, kind: str) -> set[str]:
        return {
            e.values["service_name"].removeprefix("com.amazonaws.us-east-1.")
            for e in stack.of_type("aws_vpc_endpoint")
            if e.values["vpc_endpoint_type"] == kind
        }

    for stack in (small, large):
        assert services(stack, "Gateway") == {"s3", "dynamodb"}
    assert services(small, "Interface") == {"sagemaker.runtime"}
    assert {"ecr.api", "ecr.dkr", "sts", "logs", "sqs"} <= services(large, "Interface")


def test_there_are_fewer_instances_at_night(medium: Applied) -> None:
    night = medium.one('scheduled_action.this["night"]').values
    assert night["schedule"] == "cron(0 20 * * ? *)"
    (limits,) = night["scalable_target_action"]
    assert (limits["min_capacity"], limits["max_capacity"]) == ("1", "1")


def test_instances_follow_requests_in_flight(medium: Applied) -> None:
    policy = medium.one("module.model_endpoint.module.autoscaling[0].aws_appautoscaling_policy")
    (tracking,) = policy.values["target_tracking_scaling_policy_configuration"]
    (metric,) = tracking["predefined_metric_specification"]
    assert metric["predefined_metric_type"].endswith("ConcurrentRequestsPerModelHighResolution")


def test_system_nodes_and_functions_are_graviton(small: Applied, large: Applied) -> None:
    assert all("g" in t for t in large.one("aws_eks_node_group.system").values["instance_types"])
    assert large.one("aws_eks_node_group.system").values["ami_type"].startswith("AL2023_ARM_64")
    for function in small.of_type("aws_lambda_function"):
        assert function.values["architectures"] == ["arm64"]


def test_idle_may_cost_nothing(small: Applied) -> None:
    """Scale to zero: an inference component, since a plain variant keeps one instance."""
    workspace: Workspace = small.workspace
    plan = workspace.plan("-refresh=false", "-var-file=example.tfvars", "-var=scale_to_zero=true")
    changes = {c["address"]: c["change"]["after"] for c in plan["resource_changes"]}
    stack = changes["module.inference_component[0].aws_cloudformation_stack.this"]
    assert stack["name"] == "specinfer-small-copy"
    config = changes["module.model_endpoint.aws_sagemaker_endpoint_configuration.this[0]"]
    (variant,) = config["production_variants"]
    assert variant["managed_instance_scaling"][0]["min_instance_count"] == 0
    assert variant.get("model_name") is None
    target = changes["module.inference_component[0].aws_appautoscaling_target.this"]
    assert (target["min_capacity"], target["max_capacity"]) == (0, 1)
    function = changes['module.gateway.aws_lambda_function.this["answer"]']
    (environment,) = function["environment"]
    assert environment["variables"]["SPECINFER_INFERENCE_COMPONENT"] == "specinfer-small-copy"
    alarm = changes["module.inference_component[0].aws_cloudwatch_metric_alarm.wake[0]"]
    assert alarm["metric_name"] == "NoCapacityInvocationFailures"


def test_the_components_properties_are_those_of_the_api() -> None:
    """CloudFormation's names are the API's, so botocore can check what terraform cannot."""
    aws_api = pytest.importorskip("terraform_schema.aws_api")
    model = aws_api.service_model("sagemaker").operation_model("CreateInferenceComponent")
    specification = model.input_shape.members["Specification"].members
    assert {"ModelName", "ComputeResourceRequirements", "StartupParameters"} <= set(specification)
    assert "CopyCount" in model.input_shape.members["RuntimeConfig"].members


def test_old_images_expire(stack: Applied) -> None:
    policy = json.loads(stack.one("aws_ecr_lifecycle_policy.this").values["policy"])
    (rule,) = policy["rules"]
    assert rule["selection"]["countNumber"] == 10
    assert rule["action"] == {"type": "expire"}
