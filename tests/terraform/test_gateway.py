"""What Terraform gives to gateway and model server is what their code reads."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from terraform_schema.workspace import Applied, Resource


def functions(stack: Applied) -> dict[str, Resource]:
    return {r.values["function_name"]: r for r in stack.of_type("aws_lambda_function")}


def environment(function: Resource) -> dict[str, str]:
    (block,) = function.values["environment"]
    return dict(block["variables"])


def test_the_functions_settings_are_the_gateways(small: Applied, medium: Applied) -> None:
    settings = pytest.importorskip("specinfer_gateway.settings")
    for stack in (small, medium):
        for function in functions(stack).values():
            given = environment(function) | {"AWS_LAMBDA_FUNCTION_NAME": "inside"}
            read = settings.from_environment(given)  # unknown names are errors inside Lambda
            assert read.endpoint == f"specinfer-{stack.name}"
            assert read.cache_table and read.model_revision and read.engine_revision
    assert read.async_endpoint == "specinfer-medium-jobs"


def test_the_containers_settings_are_the_servers(small: Applied, medium: Applied) -> None:
    settings = pytest.importorskip("specinfer.server.settings")
    for stack in (small, medium):
        for model in stack.of_type("aws_sagemaker_model"):
            given = model.values["primary_container"][0]["environment"]
            # Each name is a setting's, each value has its type.
            assert settings._from_environment(given).keys() <= settings.known_settings().keys()


def test_the_handler_exists(repository: Path, small: Applied) -> None:
    for function in functions(small).values():
        file, name = function.values["handler"].split(".")
        assert re.search(rf"\b{name}\b", (repository / "lambda" / f"{file}.py").read_text())


def test_the_program_that_streams_is_in_the_package(repository: Path, small: Applied) -> None:
    streaming = environment(functions(small)["specinfer-small-stream"])
    program = Path(streaming["AWS_LAMBDA_EXEC_WRAPPER"])
    assert program.parent == Path("/var/task")
    assert (repository / "lambda" / program.name).is_file()


def test_the_runtime_is_the_one_the_package_is_built_for(repository: Path, small: Applied) -> None:
    builder = (repository / "tools" / "build_lambda.py").read_text()
    (python,) = re.findall(r'"--python", default="([\d.]+)"', builder)
    assert {f.values["runtime"] for f in functions(small).values()} == {f"python{python}"}


def test_a_function_ends_before_its_integration_does(small: Applied, medium: Applied) -> None:
    for stack in (small, medium):
        timeout = {
            function.values[key]: function.values["timeout"]
            for function in functions(stack).values()
            for key in ("invoke_arn", "response_streaming_invoke_arn")
        }
        for integration in stack.of_type("aws_api_gateway_integration"):
            values = integration.values
            assert timeout[values["uri"]] <= values["timeout_milliseconds"] / 1000
            if values["response_transfer_mode"] != "STREAM":
                assert values["timeout_milliseconds"] == 29_000


def test_generations_are_streamed_and_the_rest_is_buffered(small: Applied) -> None:
    mode = {
        re.search(r'\["(.*)"\]', r.address)[1]: r.values["response_transfer_mode"]  # type: ignore[index]
        for r in small.of_type("aws_api_gateway_integration")
        if ".this[" in r.address
    }
    streamed = {route for route, value in mode.items() if value == "STREAM"}
    assert streamed == {"POST /generate", "POST /v1/chat/completions", "POST /v1/completions"}
    assert {"GET /health", "GET /v1/models"} <= set(mode) - streamed


def test_the_package_is_graviton_and_hashed(small: Applied) -> None:
    for function in functions(small).values():
        assert function.values["architectures"] == ["arm64"]
        assert function.values["source_code_hash"]
        assert function.values["filename"].endswith("build/lambda-arm64.zip")


def test_the_table_has_one_key_and_an_expiry(small: Applied) -> None:
    table = small.one("module.response_cache.aws_dynamodb_table.this").values
    assert (table["hash_key"], table["range_key"]) == ("cache_key", None)
    assert table["attribute"] == [{"name": "cache_key", "type": "S"}]
    assert table["ttl"][0] == {"attribute_name": "ttl", "enabled": True}
    assert table["point_in_time_recovery"][0]["enabled"]


def test_jobs_have_a_key_an_expiry_and_an_endpoint_that_may_sleep(medium: Applied) -> None:
    table = medium.one("module.async_jobs.aws_dynamodb_table.this").values
    assert (table["hash_key"], table["ttl"][0]["attribute_name"]) == ("job_id", "ttl")
    config = medium.one("module.jobs_endpoint.aws_sagemaker_endpoint_configuration.this").values
    (output,) = config["async_inference_config"][0]["output_config"]
    assert output["notification_config"][0]["error_topic"]
    target = medium.one("module.jobs_endpoint.module.autoscaling[0].aws_appautoscaling_target.this")
    assert target.values["min_capacity"] == 0


def test_errors_of_the_api_itself_carry_the_cors_header(small: Applied) -> None:
    responses = small.of_type("aws_api_gateway_gateway_response")
    assert {r.values["response_type"] for r in responses} == {"DEFAULT_4XX", "DEFAULT_5XX"}
    for response in responses:
        parameters = response.values["response_parameters"]
        assert parameters["gatewayresponse.header.Access-Control-Allow-Origin"] == "'*'"
        body: Any = json.loads(response.values["response_templates"]["application/json"])
        assert set(body["error"]) == {"message", "type", "code"}


def test_the_printed_request_is_whole(small: Applied) -> None:
    command = small.outputs()["curl"]
    url = small.outputs()["url"]
    assert f"'{url}/v1/chat/completions'" in command
    document = json.loads(re.search(r"-d '(.*)'", command)[1])  # type: ignore[index]
    assert document["messages"][0]["role"] == "user"


def test_the_gateways_settings_have_no_field_without_a_default_but_the_endpoint() -> None:
    settings = pytest.importorskip("specinfer_gateway.settings")
    required = [
        f.name for f in dataclasses.fields(settings.Settings) if f.default is dataclasses.MISSING
    ]
    assert required == ["endpoint"]
