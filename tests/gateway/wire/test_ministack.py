"""From API Gateway to the package: ministack runs the REST API, the function and DynamoDB.

Needs PyPI once, for ministack's own environment.
"""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from specinfer.testing import ministack
from specinfer.testing.ministack import call

ROOT = Path(__file__).parents[3]
ARCH = {"x86_64": "x86_64", "aarch64": "arm64"}[platform.machine()]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cloud(lambda_interpreter, tmp_path_factory):
    """A running ministack's address."""
    program = ministack.installed(ROOT / "build" / "ministack-3.12", lambda_interpreter)
    with ministack.running(program, tmp_path_factory.mktemp("ministack")) as url:
        yield url


@pytest.fixture
def api(cloud, sagemaker, tmp_path):
    """The address of a deployed REST API whose every path is the function's."""
    package = tmp_path / "package.zip"
    build = [sys.executable, str(ROOT / "tools/build_lambda.py"), "--arch", ARCH]
    subprocess.run([*build, "--out", str(package)], check=True)
    ministack.client(cloud, "dynamodb").create_table(
        TableName="cache",
        KeySchema=[{"AttributeName": "cache_key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cache_key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    variables = {
        "SPECINFER_ENDPOINT": "specinfer",
        "SPECINFER_CACHE_TABLE": "cache",
        "SPECINFER_MODEL_REVISION": "r1",
        **ministack.function_environment(cloud, sagemaker.url),
    }
    function = ministack.client(cloud, "lambda").create_function(
        FunctionName="gateway",
        Runtime="python3.12",
        Role="arn:aws:iam::000000000000:role/r",
        Handler="handler.lambda_handler",
        Code={"ZipFile": package.read_bytes()},
        Timeout=29,
        MemorySize=512,
        Environment={"Variables": variables},
    )
    return _deploy(cloud, function["FunctionArn"])


def _deploy(cloud, function):
    gateway = ministack.client(cloud, "apigateway")
    api = gateway.create_rest_api(name="specinfer")["id"]
    root = gateway.get_resources(restApiId=api)["items"][0]["id"]
    proxy = gateway.create_resource(restApiId=api, parentId=root, pathPart="{proxy+}")["id"]
    target = {"restApiId": api, "resourceId": proxy, "httpMethod": "ANY"}
    gateway.put_method(**target, authorizationType="NONE")
    gateway.put_integration(
        **target,
        type="AWS_PROXY",
        integrationHttpMethod="POST",
        uri=ministack.invocation_uri(function),
    )
    gateway.create_deployment(restApiId=api, stageName="v1")
    return ministack.stage_url(cloud, api, "v1")


def test_curl_to_model_and_back_through_api_gateway_and_lambda(api, sagemaker):
    assert call(f"{api}/health").status == 200
    body = {"inputs": "hi"}
    first, second = call(f"{api}/generate", body), call(f"{api}/generate", body)
    assert [first.status, second.status] == [200, 200], first
    assert [first.headers["X-Cache"], second.headers["X-Cache"]] == ["MISS", "HIT"]
    assert first.document == second.document
    assert len(sagemaker.posts) == 1
    refused = call(f"{api}/generate", {"inputs": ""})
    assert (refused.status, refused.document["param"]) == (422, "inputs")
    sagemaker.behave = sagemaker.fail(400, "ThrottlingException")
    throttled = call(f"{api}/generate", {"inputs": "other"})
    assert (throttled.status, throttled.headers["Retry-After"]) == (429, "1")
