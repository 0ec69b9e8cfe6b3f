"""The SageMaker endpoint: one attempt per request, an end in time, one kind of error."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from specinfer_gateway.deadline import Deadline, within
from specinfer_gateway.errors import GatewayError
from specinfer_gateway.upstream import explain

Result = TypeVar("Result")
MIN_SECONDS = 0.2  # below that no generation can end, so none is begun


class RuntimeClient(Protocol):
    """The part of boto3's sagemaker-runtime client that is used."""

    @property
    def invoke_endpoint(self) -> Callable[..., Any]: ...

    @property
    def invoke_endpoint_with_response_stream(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A named endpoint.  The client must make one attempt: a second one generates twice."""

    client: RuntimeClient
    name: str
    component: str = ""  # of an endpoint made of inference components

    def invoke(self, body: bytes, deadline: Deadline, traceparent: str = "") -> bytes:
        """Return the container's answer; raises GatewayError."""
        seconds = deadline.left()
        if seconds < MIN_SECONDS:
            raise GatewayError(504, "timeout", "no time was left to ask the model")

        def call() -> bytes:
            response = self.client.invoke_endpoint(**self._arguments(body, traceparent))
            answer: bytes = response["Body"].read()
            return answer

        return _explained(lambda: within(seconds, call))

    def stream(self, body: bytes, deadline: Deadline, traceparent: str = "") -> Iterator[bytes]:
        """Yield the container's stream, begun before this returns; raises GatewayError."""

        def call() -> Any:
            arguments = self._arguments(body, traceparent)
            return self.client.invoke_endpoint_with_response_stream(**arguments)["Body"]

        events = _explained(lambda: within(deadline.left(), call))
        return _parts(events, deadline)

    def _arguments(self, body: bytes, traceparent: str) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "EndpointName": self.name,
            "ContentType": "application/json",
            "Body": body,
        }
        if self.component:
            arguments["InferenceComponentName"] = self.component
        if traceparent:
            # SageMaker lets no foreign header through, X-Amzn-Trace-Id included.
            arguments["CustomAttributes"] = f"traceparent={traceparent}"
        return arguments


def _explained(call: Callable[[], Result]) -> Result:
    try:
        return call()
    except Exception as error:
        raise explain(error) from error


def _parts(events: Any, deadline: Deadline) -> Iterator[bytes]:
    """Yield the bytes of each event; closes the stream, so that the container stops early."""
    waiting = iter(events)
    try:
        while True:
            event = _explained(lambda: within(deadline.left(), lambda: next(waiting, None)))
            if event is None:
                return
            yield event["PayloadPart"]["Bytes"]
    finally:
        events.close()
