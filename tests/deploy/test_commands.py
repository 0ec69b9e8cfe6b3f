"""The command lines."""

import argparse
import io
import json

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber

from specinfer.deploy.commands import deploy, invoke, package
from specinfer.deploy.errors import DeployError
from specinfer.server.errors import SettingsError

REQUIRED = ["specinfer", "--image", "i:1", "--model", "s3://b/p/", "--role", "arn:role"]


def parsed(command, *words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(list(words))


def test_package_says_what_it_took(model_folder, tmp_path, capsys):
    target = tmp_path / "model.tar.gz"
    assert package.run(parsed(package, str(model_folder), "--out", str(target))) == 0
    assert target.is_file()
    assert capsys.readouterr().out.startswith("3 files, 0.0 MB, sha256 ")


def test_dry_run_prints_the_exact_calls_and_needs_no_sdk(capsys):
    words = [*REQUIRED, "--set", "max_batch=8", "--instances", "2", "--dry-run"]
    assert deploy.run(parsed(deploy, *words)) == 0
    model, config, endpoint = capsys.readouterr().out.splitlines()
    assert model.startswith("Model.create(model_name='specinfer-")
    assert "'SPECINFER_MAX_BATCH': '8'" in model
    assert "'initial_instance_count': 2" in config
    assert endpoint.startswith("Endpoint.create(endpoint_name='specinfer'")


def test_a_container_setting_that_would_fail_there_fails_here():
    with pytest.raises(SettingsError, match="did you mean max_batch"):
        deploy.run(parsed(deploy, *REQUIRED, "--set", "max_bach=8", "--dry-run"))


def test_without_the_sdk_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sagemaker.core.resources", None)
    monkeypatch.setitem(__import__("sys").modules, "sagemaker", None)
    with pytest.raises(DeployError, match=r"specinfer-sagemaker\[deploy\]"):
        deploy.run(parsed(deploy, *REQUIRED))


def test_invoke_prints_the_generated_text(monkeypatch, capsys):
    client = boto3.client(
        "sagemaker-runtime",
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    answer = json.dumps([{"generated_text": "hello"}]).encode()
    with Stubber(client) as stub:
        stub.add_response(
            "invoke_endpoint",
            {"Body": StreamingBody(io.BytesIO(answer), len(answer))},
            {"EndpointName": "specinfer", "ContentType": "application/json", "Body": ANY},
        )
        monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
        assert invoke.run(parsed(invoke, "specinfer", "hi")) == 0
    assert capsys.readouterr().out == "hello\n"


@pytest.mark.parametrize("size", range(1, 20))
def test_a_stream_may_be_cut_anywhere(size):
    events = [{"token": {"text": "a "}}, {"token": {"text": "\u65e5"}}]
    raw = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    parts = [{"PayloadPart": {"Bytes": raw[at : at + size]}} for at in range(0, len(raw), size)]
    assert "".join(invoke.streamed_texts(parts)) == "a \u65e5"


def test_an_error_event_is_an_error():
    part = {"PayloadPart": {"Bytes": b'data: {"error": "gone"}\n\n'}}
    with pytest.raises(DeployError, match="gone"):
        list(invoke.streamed_texts([part]))
