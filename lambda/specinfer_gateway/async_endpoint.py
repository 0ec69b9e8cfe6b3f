"""SageMaker asynchronous inference: work that outlasts a request, its input and output in S3.

https://docs.aws.amazon.com/sagemaker/latest/dg/async-inference.html
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from specinfer_gateway.errors import GatewayError
from specinfer_gateway.upstream import explain, own_words

STORE_DOWN = "the store of jobs is not available"


class AsyncClient(Protocol):
    """The part of boto3's sagemaker-runtime client that is used."""

    @property
    def invoke_endpoint_async(self) -> Callable[..., Any]: ...


class ObjectClient(Protocol):
    """The part of boto3's s3 client that is used."""

    @property
    def put_object(self) -> Callable[..., Any]: ...

    @property
    def get_object(self) -> Callable[..., Any]: ...

    @property
    def delete_object(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class Places:
    """Where SageMaker will put the answer, or tell of its failure; S3 addresses."""

    output: str
    failure: str


@dataclass(frozen=True, slots=True)
class Objects:
    """JSON in S3, addressed as s3://bucket/key; raises GatewayError when S3 does not answer."""

    client: ObjectClient

    def write(self, address: str, body: bytes) -> None:
        """Write an object."""
        place = _place(address)
        _checked(lambda: self.client.put_object(**place, Body=body, ContentType="application/json"))

    def read(self, address: str) -> bytes | None:
        """Return an object, None when there is none."""
        try:
            body: bytes = self.client.get_object(**_place(address))["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise unavailable() from error
        except BotoCoreError as error:
            raise unavailable() from error
        return body

    def delete(self, address: str) -> None:
        """Delete an object, there or not."""
        _checked(lambda: self.client.delete_object(**_place(address)))


@dataclass(frozen=True, slots=True)
class AsyncEndpoint:
    """A named asynchronous endpoint."""

    client: AsyncClient
    name: str

    def submit(self, job_id: str, address: str) -> Places:
        """Queue the input at an address, once; raises GatewayError."""
        try:
            response = self.client.invoke_endpoint_async(
                EndpointName=self.name,
                InputLocation=address,
                ContentType="application/json",
                InferenceId=job_id,
            )
        except (ClientError, BotoCoreError) as error:
            raise explain(error) from error
        return Places(response["OutputLocation"], response.get("FailureLocation", ""))


def failure_of(reason: str) -> dict[str, str]:
    """Return code and message of a failed inference; the container's own words if it has any."""
    quoted = reason[reason.find("{") : reason.rfind("}") + 1]
    try:
        json.loads(quoted)
    except ValueError:
        return {"code": "model_error", "message": "the model failed to answer"}
    message, code, _ = own_words(quoted)
    return {"code": code, "message": message}


def unavailable() -> GatewayError:
    """Return the error for a store that does not answer."""
    return GatewayError(503, "jobs_unavailable", STORE_DOWN, retry_after=5)


def _place(address: str) -> dict[str, str]:
    parts = urlsplit(address)
    return {"Bucket": parts.netloc, "Key": parts.path.lstrip("/")}


def _checked(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (ClientError, BotoCoreError) as error:
        raise unavailable() from error
