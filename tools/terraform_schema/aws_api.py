"""What the AWS API itself says of a value: enumerations, ranges, lengths and patterns.

The provider's own validators are not part of its schema.  Most restate the service's API model,
which botocore carries, so a resource's arguments are compared with the input of the operation
that creates it.  Names match when they are equal without case and underscores.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ServiceModel

from terraform_schema.values import is_unknown

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A value that AWS would refuse, and where it is."""

    path: Path
    message: str


CREATED_BY: Mapping[str, tuple[str, str]] = {
    "aws_api_gateway_authorizer": ("apigateway", "CreateAuthorizer"),
    "aws_api_gateway_gateway_response": ("apigateway", "PutGatewayResponse"),
    "aws_api_gateway_integration": ("apigateway", "PutIntegration"),
    "aws_api_gateway_method": ("apigateway", "PutMethod"),
    "aws_api_gateway_rest_api": ("apigateway", "CreateRestApi"),
    "aws_api_gateway_stage": ("apigateway", "CreateStage"),
    "aws_api_gateway_usage_plan": ("apigateway", "CreateUsagePlan"),
    "aws_appautoscaling_policy": ("application-autoscaling", "PutScalingPolicy"),
    "aws_appautoscaling_scheduled_action": ("application-autoscaling", "PutScheduledAction"),
    "aws_appautoscaling_target": ("application-autoscaling", "RegisterScalableTarget"),
    "aws_ce_anomaly_subscription": ("ce", "CreateAnomalySubscription"),
    "aws_cloudformation_stack": ("cloudformation", "CreateStack"),
    "aws_cloudtrail": ("cloudtrail", "CreateTrail"),
    "aws_cloudwatch_event_rule": ("events", "PutRule"),
    "aws_cloudwatch_log_group": ("logs", "CreateLogGroup"),
    "aws_cloudwatch_metric_alarm": ("cloudwatch", "PutMetricAlarm"),
    "aws_dynamodb_table": ("dynamodb", "CreateTable"),
    "aws_ecr_repository": ("ecr", "CreateRepository"),
    "aws_eks_access_entry": ("eks", "CreateAccessEntry"),
    "aws_eks_addon": ("eks", "CreateAddon"),
    "aws_eks_cluster": ("eks", "CreateCluster"),
    "aws_eks_node_group": ("eks", "CreateNodegroup"),
    "aws_eks_pod_identity_association": ("eks", "CreatePodIdentityAssociation"),
    "aws_flow_log": ("ec2", "CreateFlowLogs"),
    "aws_iam_role": ("iam", "CreateRole"),
    "aws_kms_alias": ("kms", "CreateAlias"),
    "aws_kms_key": ("kms", "CreateKey"),
    "aws_lambda_function": ("lambda", "CreateFunction"),
    "aws_lambda_permission": ("lambda", "AddPermission"),
    "aws_sagemaker_endpoint": ("sagemaker", "CreateEndpoint"),
    "aws_sagemaker_endpoint_configuration": ("sagemaker", "CreateEndpointConfig"),
    "aws_sagemaker_model": ("sagemaker", "CreateModel"),
    "aws_secretsmanager_secret": ("secretsmanager", "CreateSecret"),
    "aws_sns_topic_subscription": ("sns", "Subscribe"),
    "aws_sqs_queue": ("sqs", "CreateQueue"),
    "aws_vpc_endpoint": ("ec2", "CreateVpcEndpoint"),
    "aws_wafv2_web_acl": ("wafv2", "CreateWebACL"),
    "aws_xray_sampling_rule": ("xray", "CreateSamplingRule"),
}

# No API operation changes these once made, so any change but tags means a new one.
IMMUTABLE: Mapping[str, tuple[str, str]] = {
    "aws_sagemaker_endpoint_configuration": ("sagemaker", "UpdateEndpointConfig"),
    "aws_sagemaker_model": ("sagemaker", "UpdateModel"),
}

_NUMBERS = ("integer", "long", "float", "double")


@cache
def service_model(service: str) -> ServiceModel:
    return botocore.session.Session().get_service_model(service)


def findings(type_name: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything in one resource's arguments that its create operation would refuse."""
    if type_name in CREATED_BY:
        service, operation = CREATED_BY[type_name]
        shape = service_model(service).operation_model(operation).input_shape
        yield from _walk(shape, values, ())


def _walk(shape: Any, value: Any, path: Path) -> Iterator[Finding]:
    if shape is None or value is None or is_unknown(value):
        return
    if isinstance(value, Mapping) and shape.type_name == "structure":
        members = {_plain(name): member for name, member in shape.members.items()}
        for name, inner in value.items():
            yield from _walk(members.get(_plain(name)), inner, (*path, name))
    elif isinstance(value, list):
        item = shape.member if shape.type_name == "list" else shape
        for index, inner in enumerate(value):
            yield from _walk(item, inner, (*path, index))
    else:
        yield from (Finding(path, text) for text in _scalar(shape, value))


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _scalar(shape: Any, value: Any) -> Iterator[str]:
    limits = shape.metadata
    low, high = limits.get("min"), limits.get("max")
    if shape.type_name == "string" and isinstance(value, str):
        yield from _text(shape, value, low, high)
    elif shape.type_name in _NUMBERS and _is_number(value) and not _within(value, low, high):
        yield f"{value} is outside the AWS API's range {low} to {high}"


def _text(shape: Any, value: str, low: int | None, high: int | None) -> Iterator[str]:
    choices: Sequence[str] = getattr(shape, "enum", ())
    if choices and value not in choices:
        yield f"{value!r} is not one of the {len(choices)} values that the AWS API takes"
    if not _within(len(value), low, high):
        yield f"{len(value)} characters is outside the AWS API's range {low} to {high}"
    pattern = shape.metadata.get("pattern")
    if pattern and not _matches(pattern, value):
        yield f"{value!r} does not match the AWS API's pattern {pattern}"


def _within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _matches(pattern: str, value: str) -> bool:
    """Some of the models' patterns are Java's or XML's; one that Python cannot read is skipped."""
    try:
        return re.fullmatch(pattern, value, re.S) is not None
    except re.error:
        return True
