"""The plan: calls that SageMaker's own service model accepts, names that follow the contents."""

from dataclasses import replace

import boto3
import pytest
from botocore.validate import ParamValidator

from specinfer.deploy.errors import DeployError
from specinfer.deploy.plan import EndpointPlan

PLAN = EndpointPlan(
    name="specinfer",
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/specinfer:1",
    role_arn="arn:aws:iam::123456789012:role/specinfer",
    model_s3_uri="s3://bucket/models/one/",
    environment={"SPECINFER_MAX_BATCH": "8"},
    subnet_ids=("subnet-1",),
    security_group_ids=("sg-1",),
    volume_kms_key_arn="arn:aws:kms:us-east-1:123456789012:key/k",
)


def pascal(value):
    """The SDK's names as the API has them."""
    if isinstance(value, dict):
        return {name_of(key): pascal(inner) for key, inner in value.items()}
    return [pascal(inner) for inner in value] if isinstance(value, list) else value


def name_of(key):
    if key.startswith("SPECINFER_") or key == "HF_HUB_OFFLINE":
        return key
    return "".join(part.capitalize() for part in key.split("_")).replace("S3Data", "S3Data")


@pytest.mark.parametrize("uri", ["s3://bucket/models/one/", "s3://bucket/model.tar.gz"])
def test_calls_fit_the_service_model(uri):
    client = boto3.client("sagemaker", region_name="us-east-1")
    for call in replace(PLAN, model_s3_uri=uri).calls():
        operation = client.meta.service_model.operation_model(f"Create{call.resource}")
        report = ParamValidator().validate(pascal(dict(call.arguments)), operation.input_shape)
        assert not report.has_errors(), report.generate_report()


def test_parameters_are_those_of_terraform():
    model, config, endpoint = (call.arguments for call in PLAN.calls())
    assert model["enable_network_isolation"] is True
    source = model["primary_container"]["model_data_source"]["s3_data_source"]
    assert (source["s3_data_type"], source["compression_type"]) == ("S3Prefix", "None")
    assert model["primary_container"]["environment"]["HF_HUB_OFFLINE"] == "1"
    (variant,) = config["production_variants"]
    assert variant["container_startup_health_check_timeout_in_seconds"] == 900
    assert variant["inference_ami_version"].startswith("al2023-ami-sagemaker-inference-gpu-4")
    assert variant["routing_config"] == {"routing_strategy": "LEAST_OUTSTANDING_REQUESTS"}
    assert endpoint["endpoint_config_name"] == config["endpoint_config_name"]


def test_names_change_with_what_is_in_them_only():
    names = {call.resource: next(iter(call.arguments.values())) for call in PLAN.calls()}
    again = {call.resource: next(iter(call.arguments.values())) for call in PLAN.calls()}
    changed = replace(PLAN, instance_type="ml.g6.xlarge").calls()
    moved = {call.resource: next(iter(call.arguments.values())) for call in changed}
    assert names == again
    assert moved["Model"] == names["Model"]
    assert moved["EndpointConfig"] != names["EndpointConfig"]
    assert moved["Endpoint"] == names["Endpoint"] == "specinfer"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Spec_Infer"},
        {"model_s3_uri": "s3://bucket/models/one"},
        {"startup_timeout_s": 59},
        {"instances": 0},
        {"environment": {"HF_TOKEN": "x"}},
        {"security_group_ids": ()},
    ],
)
def test_what_sagemaker_would_refuse_is_refused_at_once(change):
    with pytest.raises(DeployError, match=next(iter(change))):
        replace(PLAN, **change)
