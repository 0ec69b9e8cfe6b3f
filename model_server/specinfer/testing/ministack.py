"""ministack: API Gateway, Lambda and DynamoDB over HTTP, for tests of what is deployed there.

It gets an environment of its own, because it pins another botocore, and of Lambda's Python, because
it runs functions on its own interpreter.  https://pypi.org/project/ministack/
"""

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from json import dumps, loads
from pathlib import Path
from typing import Any

from specinfer.testing import child

WANTED = ("ministack==1.5.33", "boto3==1.43.106")
REGION = "us-east-1"
KEY = "test"


def installed(folder: Path, interpreter: str) -> Path:
    """Return the program in an environment at folder, made from PyPI unless it is there."""
    stamp = folder / "installed"
    if not stamp.exists():
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *WANTED], check=True)
        stamp.touch()
    return folder / "bin" / "ministack"


@contextmanager
def running(program: Path, folder: Path) -> Iterator[str]:
    """Run it with its files in folder; yields the URL of all its services."""
    port = child.free_port()
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "GATEWAY_PORT": str(port),
        "LAMBDA_EXECUTOR": "local",
    }
    with child.running([str(program)], environment, folder, lambda: child.listens(port)):
        yield f"http://127.0.0.1:{port}"


def client(url: str, service: str) -> Any:
    """Return a boto3 client of one of its services."""
    import boto3

    return boto3.client(
        service,  # type: ignore[call-overload]  # a literal for each service is wanted
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id=KEY,
        aws_secret_access_key=KEY,
    )


def function_environment(url: str, sagemaker: str) -> dict[str, str]:
    """Return what Lambda sets by itself or AWS has no need of: keys, and where services are."""
    return {
        "AWS_ENDPOINT_URL_DYNAMODB": url,
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": sagemaker,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
    }


def invocation_uri(function_arn: str) -> str:
    """Return the URI by which an integration of API Gateway invokes a function."""
    service = f"arn:aws:apigateway:{REGION}:lambda:path/2015-03-31"
    return f"{service}/functions/{function_arn}/invocations"


def stage_url(url: str, api: str, stage: str) -> str:
    """Return the address of a deployed REST API."""
    return f"{url}/restapis/{api}/{stage}/_user_request_"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; names in headers are looked up in any case."""

    status: int
    headers: Message
    document: Any


def call(url: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
    """POST a JSON body, or GET without one."""
    data = None if body is None else dumps(body).encode()
    wanted = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, data, wanted)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, answer.headers, loads(answer.read()))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, loads(error.read()))
