"""The small stack's zip, functions, table and REST API, taken from its apply, around a real model.

ministack runs what Terraform would create on AWS; the container's server runs with the environment
of the planned SageMaker model.  Two things differ from AWS: the package is for this machine's
processor instead of arm64, and streaming is off, because ministack cannot stream.
Needs PyPI once, for the package and ministack's own environment.
"""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import build_lambda
from specinfer.fingerprint import fingerprint
from specinfer.local.sagemaker_runtime import RuntimeSettings
from specinfer.testing import child, ministack, serving
from specinfer.testing.ministack import call
from specinfer.testing.toy import write_tiny_model
from terraform_schema.in_ministack import RestApi, create_function, create_table
from terraform_schema.workspace import Applied, Workspace

ARCH = {"x86_64": "x86_64", "aarch64": "arm64"}[platform.machine()]
# Of a toy on a processor; everything else is as in example.tfvars.
TOY = {"SPECINFER_DTYPE": "float32", "SPECINFER_MAX_BATCH": "2", "SPECINFER_CACHE_TOKENS": "1024"}
BODY = {"inputs": "Hello", "parameters": {"max_new_tokens": 8, "temperature": 0}}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def interpreter() -> str:
    found = build_lambda.find_python("3.12")
    if found is None:
        pytest.skip("no python3.12 on this machine: the package is not run on Lambda's Python")
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="module")
def package(interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip, as a user builds it for `lambda_package`."""
    out = tmp_path_factory.mktemp("package") / f"lambda-{ARCH}.zip"
    assert build_lambda.main(["--arch", ARCH, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def stack(new_workspace: Callable[[str], Workspace], model: Path, package: Path) -> Applied:
    """The small stack, planned and applied for this model and package."""
    workspace = new_workspace("small")
    given = {
        "lambda_package": str(package),
        "model_revision": fingerprint(model, "torch.float32"),
        "server_settings": TOY,
        "streaming": False,
    }
    (workspace.stack / "given.tfvars.json").write_text(json.dumps(given))
    plan = workspace.plan("-var-file=example.tfvars", "-var-file=given.tfvars.json")
    return Applied("small", workspace, plan, workspace.apply_plan())


@pytest.fixture(scope="module")
def container(
    stack: Applied, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The model server with the environment that SageMaker would give it; its URL."""
    planned = stack.one("aws_sagemaker_model.this").values["primary_container"][0]["environment"]
    port = child.free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("SPECINFER_")},
        **planned,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SPECINFER_MODEL": str(model),  # where SageMaker would mount it: /opt/ml/model
        "SPECINFER_HOST": "127.0.0.1",
        "SPECINFER_PORT": str(port),
    }

    def ready() -> bool:
        try:
            return httpx.get(f"{url}/ping", timeout=2, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    command = [sys.executable, "-m", "specinfer.server", "serve"]
    with child.running(command, environment, tmp_path_factory.mktemp("container"), ready):
        yield url


@pytest.fixture(scope="module")
def sagemaker(stack: Applied, container: str) -> Iterator[str]:
    """SageMaker Runtime's URL, with the stack's endpoint in front of the container."""
    name = stack.one("aws_sagemaker_endpoint.this").values["name"]
    with serving.sagemaker(RuntimeSettings(container=container, endpoint=name)) as url:
        yield url


@pytest.fixture(scope="module")
def cloud(
    interpreter: str, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A running ministack's address."""
    program = ministack.installed(repository / "build" / "ministack-3.12", interpreter)
    with ministack.running(program, tmp_path_factory.mktemp("ministack")) as url:
        yield url


@pytest.fixture(scope="module")
def api(stack: Applied, package: Path, sagemaker: str, cloud: str) -> RestApi:
    """Table, function and REST API of the stack, on ministack."""
    create_table(cloud, stack.one("module.response_cache.aws_dynamodb_table.this").values)
    functions = {
        found.values["invoke_arn"]: create_function(cloud, found.values, package, sagemaker)
        for found in stack.of_type("aws_lambda_function")
    }
    return RestApi(cloud, stack, functions)


def test_a_request_goes_through_what_terraform_would_deploy(api: RestApi) -> None:
    key = {"x-api-key": api.key}
    first, second = (call(f"{api.url}/generate", BODY, key) for _ in range(2))
    assert [first.status, second.status] == [200, 200], first
    assert [first.headers["X-Cache"], second.headers["X-Cache"]] == ["MISS", "HIT"]
    assert first.document == second.document
    assert first.document["generated_text"]
    assert first.document["details"]["generated_tokens"] == 8
    assert first.document["details"]["speculation"]["tokens_per_step"] >= 1


def test_a_wrong_body_is_refused_by_the_name_of_its_field(api: RestApi) -> None:
    wrong = BODY | {"parameters": {"max_new_tokens": -1}}
    refused = call(f"{api.url}/generate", wrong, {"x-api-key": api.key})
    assert (refused.status, refused.document["param"]) == (422, "parameters.max_new_tokens")


def test_only_who_has_the_stacks_key_may_ask(api: RestApi) -> None:
    assert call(f"{api.url}/generate", BODY).status == 403
    assert call(f"{api.url}/health").status == 200


def test_the_models_revision_is_the_one_the_server_reports(stack: Applied, container: str) -> None:
    """It is part of every cache key: a wrong one would serve an older model's answers."""
    (model,) = call(f"{container}/v1/models").document["data"]
    variables = stack.one("aws_lambda_function.this").values["environment"][0]["variables"]
    assert variables["SPECINFER_MODEL_REVISION"] == model["revision"]
