"""From API Gateway to the package: ministack runs the REST API, the function and DynamoDB.

Needs PyPI once, for ministack's own environment (it pins another botocore).
"""

import json
import os
import platform
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import boto3
import pytest

ROOT = Path(__file__).parents[3]
ARCH = {"x86_64": "x86_64", "aarch64": "arm64"}[platform.machine()]
WANTED = ["ministack==1.5.33", "boto3==1.43.106"]
REGION = "us-east-1"
CREDENTIALS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(lambda_interpreter):
    """ministack in an environment of Lambda's Python, on which it runs functions."""
    folder = ROOT / "build" / "ministack-3.12"
    stamp = folder / "installed"
    if not stamp.exists():
        subprocess.run([lambda_interpreter, "-m", "venv", str(folder)], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *WANTED], check=True)
        stamp.touch()
    return str(folder / "bin" / "ministack")


@pytest.fixture(scope="module")
def cloud(program, tmp_path_factory):
    """A running ministack's address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("ministack")
    environment = {
        "PATH": f"{Path(program).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "GATEWAY_PORT": str(port),
        "LAMBDA_EXECUTOR": "local",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program], env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _await_port(port, process, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _await_port(port, process, log):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture
def api(cloud, sagemaker, tmp_path):
    """The address of a deployed REST API whose every path is the function's."""
    package = tmp_path / "package.zip"
    build = [sys.executable, str(ROOT / "tools/build_lambda.py"), "--arch", ARCH]
    subprocess.run([*build, "--out", str(package)], check=True)

    def client(service):
        return boto3.client(service, region_name=REGION, endpoint_url=cloud, **CREDENTIALS)

    client("dynamodb").create_table(
        TableName="cache",
        KeySchema=[{"AttributeName": "cache_key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cache_key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    variables = {
        "SPECINFER_ENDPOINT": "specinfer",
        "SPECINFER_CACHE_TABLE": "cache",
        "SPECINFER_MODEL_REVISION": "r1",
        "AWS_ENDPOINT_URL_DYNAMODB": cloud,
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": sagemaker.url,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    function = client("lambda").create_function(
        FunctionName="gateway",
        Runtime="python3.12",
        Role="arn:aws:iam::000000000000:role/r",
        Handler="handler.lambda_handler",
        Code={"ZipFile": package.read_bytes()},
        Timeout=29,
        MemorySize=512,
        Environment={"Variables": variables},
    )
    return cloud + _deploy(client("apigateway"), function["FunctionArn"])


def _deploy(gateway, function):
    api = gateway.create_rest_api(name="specinfer")["id"]
    root = gateway.get_resources(restApiId=api)["items"][0]["id"]
    proxy = gateway.create_resource(restApiId=api, parentId=root, pathPart="{proxy+}")["id"]
    target = {"restApiId": api, "resourceId": proxy, "httpMethod": "ANY"}
    gateway.put_method(**target, authorizationType="NONE")
    gateway.put_integration(
        **target,
        type="AWS_PROXY",
        integrationHttpMethod="POST",
        uri=f"arn:aws:apigateway:{REGION}:lambda:path/2015-03-31/functions/{function}/invocations",
    )
    gateway.create_deployment(restApiId=api, stageName="v1")
    return f"/restapis/{api}/v1/_user_request_"


def call(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), json.loads(error.read())


def test_curl_to_model_and_back_through_api_gateway_and_lambda(api, sagemaker):
    assert call(f"{api}/health")[0] == 200
    body = {"inputs": "hi"}
    first, second = call(f"{api}/generate", body), call(f"{api}/generate", body)
    assert [first[0], second[0]] == [200, 200], first
    assert [first[1]["X-Cache"], second[1]["X-Cache"]] == ["MISS", "HIT"]
    assert first[2] == second[2]
    assert len(sagemaker.posts) == 1
    status, _, document = call(f"{api}/generate", {"inputs": ""})
    assert (status, document["param"]) == (422, "inputs")
    sagemaker.behave = sagemaker.fail(400, "ThrottlingException")
    status, headers, _ = call(f"{api}/generate", {"inputs": "other"})
    assert (status, headers["Retry-After"]) == (429, "1")
