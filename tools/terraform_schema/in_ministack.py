"""What a stack has after its apply, made again in ministack: table, functions, REST API, key."""

from pathlib import Path
from typing import Any

from specinfer.testing import ministack
from terraform_schema.workspace import Applied, Resource


def create_table(cloud: str, table: Any) -> None:
    """Create the table as applied, with its expiry and point-in-time recovery."""
    (key,) = table["server_side_encryption"]
    (expiry,) = table["ttl"]
    dynamodb = ministack.client(cloud, "dynamodb")
    dynamodb.create_table(
        TableName=table["name"],
        BillingMode=table["billing_mode"],
        KeySchema=[{"AttributeName": table["hash_key"], "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": a["name"], "AttributeType": a["type"]} for a in table["attribute"]
        ],
        SSESpecification={
            "Enabled": key["enabled"],
            "SSEType": "KMS",
            "KMSMasterKeyId": key["kms_key_arn"],
        },
    )
    dynamodb.update_time_to_live(
        TableName=table["name"],
        TimeToLiveSpecification={
            "AttributeName": expiry["attribute_name"],
            "Enabled": expiry["enabled"],
        },
    )
    (recovery,) = table["point_in_time_recovery"]
    dynamodb.update_continuous_backups(
        TableName=table["name"],
        PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": recovery["enabled"]},
    )


def create_function(cloud: str, function: Any, package: Path, sagemaker: str) -> str:
    """Create the function as applied; returns its ARN."""
    variables = function["environment"][0]["variables"]
    created = ministack.client(cloud, "lambda").create_function(
        FunctionName=function["function_name"],
        Runtime=function["runtime"],
        Role=function["role"],
        Handler=function["handler"],
        Code={"ZipFile": package.read_bytes()},
        Timeout=function["timeout"],
        MemorySize=function["memory_size"],
        Environment={
            "Variables": variables | ministack.function_environment(cloud, sagemaker),
        },
    )
    assert created["CodeSha256"] == function["source_code_hash"]
    return str(created["FunctionArn"])


class RestApi:
    """The REST API as applied, made again with the ids that ministack gives."""

    def __init__(self, cloud: str, stack: Applied, functions: dict[str, str]) -> None:
        self._gateway = ministack.client(cloud, "apigateway")
        self._stack = stack
        self._functions = functions  # ARN by which the stack invokes -> ARN in ministack
        self._api = self._gateway.create_rest_api(name=stack.name)["id"]
        self._ids: dict[str, str] = {}  # of resources: the stack's -> ministack's
        self._add_resources()
        self._add_methods()
        self._stage = stack.one("aws_api_gateway_stage.this").values["stage_name"]
        self._gateway.create_deployment(restApiId=self._api, stageName=self._stage)
        self.url = ministack.stage_url(cloud, self._api, self._stage)
        self.key = self._add_key()

    def _add_resources(self) -> None:
        (top,) = (r for r in self._stack.of_type("aws_api_gateway_rest_api"))
        (root,) = self._gateway.get_resources(restApiId=self._api)["items"]
        self._ids[top.values["root_resource_id"]] = root["id"]
        for found in sorted(self._stack.of_type("aws_api_gateway_resource"), key=_depth):
            values = found.values
            parent = self._ids[values["parent_id"]]
            made = self._gateway.create_resource(
                restApiId=self._api, parentId=parent, pathPart=values["path_part"]
            )
            self._ids[values["id"]] = made["id"]

    def _target(self, values: Any) -> dict[str, str]:
        resource = self._ids[values["resource_id"]]
        method = values["http_method"]
        return {"restApiId": self._api, "resourceId": resource, "httpMethod": method}

    def _add_methods(self) -> None:
        for found in self._stack.of_type("aws_api_gateway_method"):
            self._gateway.put_method(
                **self._target(found.values),
                authorizationType=found.values["authorization"],
                apiKeyRequired=bool(found.values["api_key_required"]),
            )
        for found in self._stack.of_type("aws_api_gateway_integration"):
            self._gateway.put_integration(
                **self._target(found.values),
                type=found.values["type"],
                integrationHttpMethod=found.values["integration_http_method"],
                timeoutInMillis=found.values["timeout_milliseconds"],
                uri=ministack.invocation_uri(self._functions[found.values["uri"]]),
            )

    def _add_key(self) -> str:
        plan = self._stack.one("aws_api_gateway_usage_plan.this").values
        limits = plan["throttle_settings"][0]
        name = self._stack.one("aws_api_gateway_api_key.this").values["name"]
        key = self._gateway.create_api_key(name=name, enabled=True)
        made = self._gateway.create_usage_plan(
            name=plan["name"],
            apiStages=[{"apiId": self._api, "stage": self._stage}],
            throttle={"rateLimit": limits["rate_limit"], "burstLimit": limits["burst_limit"]},
        )
        self._gateway.create_usage_plan_key(
            usagePlanId=made["id"], keyId=key["id"], keyType="API_KEY"
        )
        return str(key["value"])


def _depth(resource: Resource) -> int:
    """The stack names the resources of its API by their paths."""
    return resource.address.count("/")
