"""The six points of security: least privilege, isolation, encryption, input, audit, secrets."""

import json
import re

from terraform_schema.policies import statements
from terraform_schema.workspace import Applied

# AWS offers no resource to name for these; where a condition is offered, the policy has it.
WITHOUT_RESOURCE = {
    "cloudwatch:PutMetricData",
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:UnassignPrivateIpAddresses",
    "ecr:GetAuthorizationToken",
    "pricing:GetProducts",
    "ssm:GetParameter",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
}
READ_ONLY = re.compile(r"^\w+:(Describe|List)\w+$")


def allowed(stack: Applied) -> list:
    return [s for s in statements(stack.resources) if s.effect == "Allow"]


def test_no_statement_allows_a_wildcard_action(stack: Applied) -> None:
    for statement in allowed(stack):
        assert not [a for a in statement.actions if "*" in a], statement


def test_roles_name_their_resources(stack: Applied) -> None:
    for statement in allowed(stack):
        if statement.is_identity_policy and "*" in statement.resources:
            unbound = [a for a in statement.actions if not READ_ONLY.match(a)]
            assert set(unbound) <= WITHOUT_RESOURCE or statement.condition, statement


def test_metrics_may_be_published_in_our_namespaces_only(stack: Applied) -> None:
    for statement in allowed(stack):
        if "cloudwatch:PutMetricData" in statement.actions:
            assert statement.condition["StringEquals"]["cloudwatch:namespace"]


def test_no_full_access_policy_is_attached(stack: Applied) -> None:
    for attachment in stack.of_type("aws_iam_role_policy_attachment"):
        assert "FullAccess" not in attachment.values["policy_arn"], attachment.address


def test_services_assume_roles_only_from_this_account_or_source(small: Applied) -> None:
    for role in small.of_type("aws_iam_role"):
        (statement,) = (s for s in statements([role]))
        assert "Service" in statement.principal and "AWS" not in statement.principal, role.address


def test_the_gateway_may_ask_one_endpoint_and_use_one_table(small: Applied) -> None:
    role = small.one("module.gateway.aws_iam_role_policy.this")
    by_sid = {s.sid: s for s in statements([role])}
    endpoint = small.one("aws_sagemaker_endpoint.this")
    table = small.one("module.response_cache.aws_dynamodb_table.this")
    assert by_sid["AskTheModel"].resources == (endpoint.values["arn"],)
    assert by_sid["UseTheCache"].resources == (table.values["arn"],)


def test_the_model_role_reads_one_prefix_of_one_bucket(small: Applied) -> None:
    role = small.one("module.model_endpoint.module.role.aws_iam_role_policy.this")
    by_sid = {s.sid: s for s in statements([role])}
    bucket = small.one("module.model_store.module.bucket.aws_s3_bucket.this").values["arn"]
    (read,) = by_sid["ReadTheModel"].resources
    assert read == f"{bucket}/models/0000000000000000/*"
    assert by_sid["ListTheModel"].condition["StringLike"]["s3:prefix"] == [
        "models/0000000000000000/*"
    ]


def test_every_bucket_is_private_encrypted_versioned_and_over_tls(stack: Applied) -> None:
    for bucket in stack.of_type("aws_s3_bucket"):
        beside = {r.type: r for r in stack.resources if r.in_module == bucket.in_module}
        block = beside["aws_s3_bucket_public_access_block"].values
        assert all(v for n, v in block.items() if n.startswith(("block_", "ignore_", "restrict_")))
        (rule,) = beside["aws_s3_bucket_server_side_encryption_configuration"].values["rule"]
        assert rule["apply_server_side_encryption_by_default"][0]["kms_master_key_id"]
        versioning = beside["aws_s3_bucket_versioning"].values["versioning_configuration"]
        assert versioning[0]["status"] == "Enabled"
        denied = [s for s in statements([beside["aws_s3_bucket_policy"]]) if s.effect == "Deny"]
        assert denied[0].condition == {"Bool": {"aws:SecureTransport": "false"}}


def test_everything_kept_is_encrypted_with_the_stacks_key(stack: Applied) -> None:
    key = stack.one("module.encryption.aws_kms_key.this").values["arn"]
    attribute = {
        "aws_cloudtrail": "kms_key_id",
        "aws_cloudwatch_log_group": "kms_key_id",
        "aws_lambda_function": "kms_key_arn",
        "aws_secretsmanager_secret": "kms_key_id",
        "aws_sns_topic": "kms_master_key_id",
        "aws_sqs_queue": "kms_master_key_id",
    }
    for resource in stack.resources:
        if resource.type in attribute:
            assert resource.values[attribute[resource.type]] == key, resource.address
        if resource.type == "aws_dynamodb_table":
            assert resource.values["server_side_encryption"][0]["kms_key_arn"] == key
        if resource.type == "aws_ecr_repository":
            assert resource.values["encryption_configuration"][0]["kms_key"] == key


def test_the_key_rotates(stack: Applied) -> None:
    for key in stack.of_type("aws_kms_key"):
        assert key.values["enable_key_rotation"], key.address


def test_model_containers_have_no_network(small: Applied, medium: Applied) -> None:
    for model in small.of_type("aws_sagemaker_model") + medium.of_type("aws_sagemaker_model"):
        assert model.values["enable_network_isolation"]
        assert model.values["vpc_config"][0]["subnets"]
        environment = model.values["primary_container"][0]["environment"]
        assert environment["HF_HUB_OFFLINE"] == "1"


def test_functions_and_models_are_in_private_subnets(stack: Applied) -> None:
    private = {s.values["id"] for s in stack.of_type("aws_subnet") if "private" in s.address}
    for function in stack.of_type("aws_lambda_function"):
        assert set(function.values["vpc_config"][0]["subnet_ids"]) <= private
    for model in stack.of_type("aws_sagemaker_model"):
        assert set(model.values["vpc_config"][0]["subnets"]) <= private


def test_small_and_medium_have_no_way_to_the_internet(small: Applied, medium: Applied) -> None:
    for stack in (small, medium):
        for kind in ("aws_internet_gateway", "aws_nat_gateway", "aws_route"):
            assert stack.of_type(kind) == [], stack.name


def test_no_security_group_rule_is_open(stack: Applied) -> None:
    for direction in ("ingress", "egress"):
        for rule in stack.of_type(f"aws_vpc_security_group_{direction}_rule"):
            open_to_all = rule.values["cidr_ipv4"] == "0.0.0.0/0"
            assert not open_to_all or "nodes" in rule.address, rule.address


def test_every_request_but_the_open_ones_needs_a_key(small: Applied) -> None:
    needs_none = ("preflight", "GET /health", "GET /openapi.json")
    for method in small.of_type("aws_api_gateway_method"):
        is_open = any(part in method.address for part in needs_none)
        assert method.values["api_key_required"] is not is_open, method.address


def test_where_the_function_checks_keys_it_has_the_secret(medium: Applied) -> None:
    secret = medium.one("module.api_keys.aws_secretsmanager_secret.this").values["arn"]
    for function in medium.of_type("aws_lambda_function"):
        (environment,) = function.values["environment"]
        assert environment["variables"]["SPECINFER_API_KEYS_SECRET"] == secret


def test_no_secret_is_in_an_environment_or_a_state(stack: Applied) -> None:
    assert stack.of_type("aws_secretsmanager_secret_version") == []
    for function in stack.of_type("aws_lambda_function"):
        names = function.values["environment"][0]["variables"]
        assert not [n for n in names if re.search("KEY$|TOKEN$|PASSWORD", n)]


def test_prompts_are_never_logged_by_api_gateway(small: Applied) -> None:
    settings = small.one("aws_api_gateway_method_settings.this").values["settings"][0]
    assert settings["data_trace_enabled"] is False
    stage = small.one("aws_api_gateway_stage.this").values
    line = json.loads(stage["access_log_settings"][0]["format"])
    assert not {"body", "querystring"} & {str(v).rpartition(".")[2] for v in line.values()}


def test_model_reads_and_management_are_audited(stack: Applied) -> None:
    trail = stack.one("aws_cloudtrail.this").values
    bucket = stack.one("module.model_store.module.bucket.aws_s3_bucket.this").values["arn"]
    assert trail["is_multi_region_trail"] and trail["enable_log_file_validation"]
    selected = json.dumps(trail["advanced_event_selector"])
    assert '"Management"' in selected and f'"{bucket}/"' in selected


def test_the_network_keeps_flow_logs(stack: Applied) -> None:
    (flow,) = stack.of_type("aws_flow_log")
    assert flow.values["traffic_type"] == "ALL"
