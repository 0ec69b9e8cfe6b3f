"""The zip: which files and bytes, and how the real Lambda runtime client runs it on its Python.

The slow tests need PyPI once, to build the package and a virtual environment with awslambdaric.
"""

import hashlib
import json
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.request import Request, urlopen

import boto3
import pytest
from moto.server import ThreadedMotoServer

from specinfer.local.event_stream import payload_part
from specinfer.local.sagemaker_runtime import RuntimeSettings
from specinfer.server.app import create_app
from specinfer.server.run import build_service
from specinfer.server.settings import ServerSettings
from specinfer.testing.fake_engine import FakeEngine
from specinfer.testing.serving import sagemaker as sagemaker_runtime
from specinfer.testing.serving import serving

ROOT = Path(__file__).parents[3]
PYTHON = "3.12"
HOST = {"x86_64": "x86_64", "aarch64": "arm64"}[platform.machine()]
BODY = {"inputs": "hi", "parameters": {"max_new_tokens": 5}}
HUNG = BODY | {"inputs": "hung"}
KEY = "a-secret-key"


def elf(machine):
    return b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little") + bytes(40)


def test_a_library_of_another_processor_is_refused(builder, tmp_path):
    library = tmp_path / "x.so"
    library.write_bytes(elf(62))
    builder.check_machine(library, "x86_64")
    with pytest.raises(builder.BuildError, match="machine 62, not for arm64"):
        builder.check_machine(library, "arm64")
    library.write_bytes(b"#!/bin/sh" + bytes(20))
    with pytest.raises(builder.BuildError):
        builder.check_machine(library, "x86_64")


def test_the_gateway_needs_neither_torch_nor_specinfer_nor_boto3():
    """In a fresh interpreter, so that no other test's imports count."""
    code = (
        "import sys; sys.path.insert(0, 'lambda');"
        "import handler, specinfer_gateway.stream_runtime;"
        "print([m for m in sys.modules if m.split('.')[0] in"
        " ('torch', 'transformers', 'specinfer', 'specinfer_kernels', 'boto3', 'aws_xray_sdk')])"
    )
    environment = {"SPECINFER_ENDPOINT": "e", "AWS_DEFAULT_REGION": "us-east-1"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert run.stdout.strip() == "[]", run.stderr


def test_the_package_s_versions_are_those_that_are_tested():
    def pins(name):
        lines = (ROOT / name).read_text().replace("_", "-").lower().splitlines()
        return {line.strip() for line in lines if "==" in line and not line.startswith("#")}

    assert pins("lambda/requirements.txt") - pins("constraints.txt") == set()


@pytest.fixture(scope="module")
def packages(builder, tmp_path_factory):
    """Both packages, built as a user builds them."""
    folder = tmp_path_factory.mktemp("packages")
    for arch in builder.WHEELS:
        command = [sys.executable, str(ROOT / "tools/build_lambda.py"), "--arch", arch]
        subprocess.run([*command, "--out", str(folder / f"{arch}.zip")], check=True)
    return folder


@pytest.fixture(scope="module")
def lambda_python(lambda_interpreter):
    """An interpreter of Lambda's version with the real runtime client, as Lambda has it."""
    folder = ROOT / "build" / f"lambda-runtime-{PYTHON}"
    stamp = folder / "installed"
    if not stamp.exists():
        subprocess.run([lambda_interpreter, "-m", "venv", str(folder)], check=True)
        wanted = ["awslambdaric==4.2.2", "boto3==1.44.8"]
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *wanted], check=True)
        stamp.touch()
    return str(folder / "bin" / "python")


@pytest.mark.slow
def test_packages_are_small_made_for_their_processor_and_the_same_every_time(
    builder, packages, tmp_path
):
    for arch, machine in builder.ELF_MACHINES.items():
        package = packages / f"{arch}.zip"
        assert package.stat().st_size <= 6 * 1024 * 1024
        with zipfile.ZipFile(package) as opened:
            names = opened.namelist()
            libraries = [name for name in names if name.endswith(".so")]
            assert libraries
            for name in libraries:
                assert int.from_bytes(opened.read(name)[18:20], "little") == machine
            assert {"handler.py", "specinfer_gateway/openapi.py", "stream_bootstrap"} <= set(names)
            assert opened.getinfo("stream_bootstrap").external_attr >> 16 == 0o755
            assert not [name for name in names if name.startswith(("boto", "torch", "tests"))]
    again = tmp_path / "again.zip"
    builder.build(HOST, again, PYTHON)
    digests = {hashlib.sha256(p.read_bytes()).digest() for p in (again, packages / f"{HOST}.zip")}
    assert len(digests) == 1


@pytest.fixture(scope="module")
def folder(packages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    with zipfile.ZipFile(packages / f"{HOST}.zip") as package:
        package.extractall(folder)
    (folder / "stream_bootstrap").chmod(0o755)  # which extractall forgets and Lambda does not
    return folder


@pytest.fixture(scope="module")
def moto():
    """DynamoDB, S3 and Secrets Manager over HTTP, with what the gateway expects in them."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    urlopen(Request(f"{url}/moto-api/reset", method="POST")).close()

    def client(service):
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto3.client(service, region_name="us-east-1", endpoint_url=url, **keys)

    for table, key in (("cache", "cache_key"), ("jobs", "job_id")):
        client("dynamodb").create_table(
            TableName=table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    client("s3").create_bucket(Bucket="jobs")
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    secret = json.dumps({"keys": [{"name": "alice", "sha256": digest}]})
    client("secretsmanager").create_secret(Name="keys", SecretString=secret)
    yield url
    server.stop()


@pytest.fixture
def function(start_function, lambda_python, folder, sagemaker, moto):
    """The package under awslambdaric."""
    return start_function(
        [lambda_python, "-m", "awslambdaric", "handler.lambda_handler"],
        folder,
        SPECINFER_ENDPOINT="specinfer",
        SPECINFER_CACHE_TABLE="cache",
        SPECINFER_MODEL_REVISION="r1",
        SPECINFER_API_KEYS_SECRET="keys",
        SPECINFER_ASYNC_ENDPOINT="specinfer-async",
        SPECINFER_JOBS_TABLE="jobs",
        SPECINFER_JOBS_BUCKET="jobs",
        AWS_ENDPOINT_URL=moto,
        AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME=sagemaker.url,
    )


def event(path, body=None, method="POST", key=KEY):
    return {
        "resource": path,
        "path": path,
        "httpMethod": method,
        "headers": {"Content-Type": "application/json", "x-api-key": key},
        "requestContext": {"requestId": "r-1", "stage": "v", "path": f"/v{path}"},
        "body": None if body is None else json.dumps(body),
        "isBase64Encoded": False,
    }


@pytest.mark.slow
def test_the_runtime_client_runs_the_package(function, sagemaker):
    first, second = (function.invoke(event("/generate", BODY)).payload for _ in range(2))
    assert [first["statusCode"], second["statusCode"]] == [200, 200], function.log
    states = [answer["multiValueHeaders"]["X-Cache"] for answer in (first, second)]
    assert states == [["MISS"], ["HIT"]]
    assert first["body"] == second["body"]
    assert len(sagemaker.posts) == 1
    refused = function.invoke(event("/generate", BODY, key="wrong")).payload
    assert refused["statusCode"] == 401
    document = function.invoke(event("/openapi.json", method="GET")).payload
    assert json.loads(document["body"])["openapi"] == "3.1.0"
    assert not any(KEY in line for line in function.log)


@pytest.fixture
def endpoint():
    """The real container's server, behind the laptop stack's SageMaker Runtime."""
    service = build_service(ServerSettings(), FakeEngine)
    with (
        serving(create_app(service)) as container,
        sagemaker_runtime(RuntimeSettings(container=container)) as url,
    ):
        yield url
    service.tokenisers.shutdown()
    service.compilers.shutdown()


@pytest.mark.slow
def test_package_runtime_and_container_together(start_function, lambda_python, folder, endpoint):
    """Zip under awslambdaric, botocore on the wire, SageMaker's API, the container's server."""
    environment = {
        "SPECINFER_ENDPOINT": "specinfer",
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": endpoint,
    }
    command = [lambda_python, "-m", "awslambdaric", "handler.lambda_handler"]
    whole = start_function(command, folder, **environment)
    answer = whole.invoke(event("/generate", BODY)).payload
    assert answer["statusCode"] == 200, answer
    assert json.loads(answer["body"])["details"]["speculation"]["tokens_per_step"] > 0
    bad = BODY | {"parameters": {"watermark": True}}
    refused = whole.invoke(event("/generate", bad)).payload
    assert refused["statusCode"] == 422
    assert "watermark" in refused["body"]
    command = [str(folder / "stream_bootstrap"), lambda_python, "bootstrap.py"]
    streaming = start_function(command, folder, **environment)
    result = streaming.invoke(event("/generate", BODY | {"stream": True}))
    assert b'"generated_text":null' in b"".join(data for _, data in result.parts)
    assert b'"error"' not in b"".join(data for _, data in result.parts)


@pytest.mark.slow
def test_a_hung_model_ends_at_the_deadline_and_after_one_post(function, sagemaker):
    sagemaker.behave = sagemaker.hang
    answer = function.invoke(event("/generate", HUNG), seconds=4).payload
    assert (answer["statusCode"], json.loads(answer["body"])["code"]) == (504, "timeout")
    sagemaker.behave = sagemaker.fail(400, "ThrottlingException")
    answer = function.invoke(event("/generate", HUNG)).payload
    assert answer["statusCode"] == 429
    sagemaker.behave = sagemaker.answer
    assert function.invoke(event("/generate", HUNG)).payload["statusCode"] == 200
    assert len(sagemaker.posts) == 3


@pytest.mark.slow
def test_a_job_goes_through_s3_and_the_table(function, sagemaker):
    def accept(http, body):
        headers = {
            "X-Amzn-SageMaker-OutputLocation": "s3://jobs/out/1.out",
            "X-Amzn-SageMaker-FailureLocation": "s3://jobs/failed/1.out",
        }
        http.send_response(202)
        for name, value in ({"Content-Length": "2"} | headers).items():
            http.send_header(name, value)
        http.end_headers()
        http.wfile.write(b"{}")

    sagemaker.behave = accept
    begun = function.invoke(event("/v1/jobs", BODY)).payload
    assert begun["statusCode"] == 202, begun
    path = begun["multiValueHeaders"]["Location"][0]
    shown = function.invoke(event(path, method="GET")).payload
    assert json.loads(shown["body"])["status"] == "running"
    assert function.invoke(event(path, method="DELETE")).payload["statusCode"] == 204


@pytest.mark.slow
def test_the_package_streams_on_lambdas_python(start_function, lambda_python, folder, sagemaker):
    sagemaker.behave = sagemaker.stream(payload_part(b"data: [DONE]\n\n"))
    function = start_function(
        [str(folder / "stream_bootstrap"), lambda_python, "bootstrap.py"],
        folder,
        SPECINFER_ENDPOINT="specinfer",
        AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME=sagemaker.url,
    )
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    result = function.invoke(event("/v1/chat/completions", body))
    assert result.streamed
    assert b"".join(data for _, data in result.parts).endswith(b"data: [DONE]\n\n")


@pytest.mark.slow
def test_the_package_starts_quickly(lambda_python, folder):
    """Twice the 0.7 s that are wanted on a quiet machine: benchmarks/gateway.py has the figure."""
    code = "import time; import handler; print(time.process_time())"
    environment = {"SPECINFER_ENDPOINT": "e", "AWS_DEFAULT_REGION": "us-east-1"}
    seconds = [
        float(subprocess.check_output([lambda_python, "-c", code], cwd=folder, env=environment))
        for _ in range(3)
    ]
    assert min(seconds) < 1.4
