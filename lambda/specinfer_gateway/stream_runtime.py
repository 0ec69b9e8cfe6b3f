"""Lambda's runtime loop with streamed answers, which Python's managed runtime does not have.

`stream_bootstrap` puts it in that runtime's place.  A streamed answer is chunked HTTP: JSON with
status and headers, eight NUL bytes, the body; errors within it go into trailers.
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html#runtimes-custom-response-streaming
"""

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from typing import Any

from specinfer_gateway.stream_app import Streamed
from specinfer_gateway.wiring import build_streaming

ROOT = "/2018-06-01/runtime"
ERROR_TYPE, ERROR_BODY = "Lambda-Runtime-Function-Error-Type", "Lambda-Runtime-Function-Error-Body"
SEPARATOR = b"\0" * 8
ANSWER_HEADERS = {
    "Lambda-Runtime-Function-Response-Mode": "streaming",
    "Transfer-Encoding": "chunked",
    "Content-Type": "application/vnd.awslambda.http-integration-response",
    "Trailer": f"{ERROR_TYPE}, {ERROR_BODY}",
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """One event, and what a handler may ask about it."""

    event: dict[str, Any]
    aws_request_id: str
    deadline_ms: int  # since the epoch
    trace: str

    def get_remaining_time_in_millis(self) -> int:
        """Return the time that is left, never below 0."""
        return max(0, self.deadline_ms - int(time.time() * 1000))


@dataclass(frozen=True, slots=True)
class RuntimeApi:
    """The HTTP API of the execution environment at host:port."""

    address: str

    def next(self) -> Invocation:
        """Wait for an event; without a time-out, since the environment may be frozen meanwhile."""
        connection = HTTPConnection(self.address)
        connection.request("GET", f"{ROOT}/invocation/next")
        response = connection.getresponse()
        event = json.loads(response.read())
        connection.close()
        return Invocation(
            event=event,
            aws_request_id=response.headers["Lambda-Runtime-Aws-Request-Id"],
            deadline_ms=int(response.headers["Lambda-Runtime-Deadline-Ms"]),
            trace=response.headers.get("Lambda-Runtime-Trace-Id", ""),
        )

    def answer(self, request_id: str, produce: Callable[[], Streamed]) -> None:
        """Send what is produced as it comes."""
        connection = HTTPConnection(self.address)
        connection.putrequest("POST", f"{ROOT}/invocation/{request_id}/response")
        for name, value in ANSWER_HEADERS.items():
            connection.putheader(name, value)
        connection.endheaders()
        trailers = b""
        try:
            streamed = produce()
            connection.send(_chunk(json.dumps(streamed.metadata).encode() + SEPARATOR))
            for part in streamed.parts:
                connection.send(_chunk(part))
        except OSError:  # the caller has left; should the API be gone, next() will tell
            connection.close()
            return
        except Exception as error:
            trailers = _trailers(error)
        connection.send(b"0\r\n" + trailers + b"\r\n")
        connection.getresponse().read()
        connection.close()

    def refuse_start(self, error: Exception) -> None:
        """Tell that the function could not be built."""
        document = {"errorMessage": str(error), "errorType": type(error).__name__}
        connection = HTTPConnection(self.address)
        headers = {ERROR_TYPE: document["errorType"]}
        connection.request("POST", f"{ROOT}/init/error", json.dumps(document), headers)
        connection.getresponse().read()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def _trailers(error: Exception) -> bytes:
    """Tell an error's type; its text may quote the prompt."""
    kind = type(error).__name__
    body = json.dumps({"errorType": kind, "errorMessage": "the gateway failed"}).encode()
    return f"{ERROR_TYPE}: {kind}\r\n{ERROR_BODY}: {base64.b64encode(body).decode()}\r\n".encode()


def serve(api: RuntimeApi, handler: Callable[[dict[str, Any], Any], Streamed]) -> None:
    """Answer events for ever."""
    while True:
        invocation = api.next()
        os.environ["_X_AMZN_TRACE_ID"] = invocation.trace
        api.answer(invocation.aws_request_id, partial(handler, invocation.event, invocation))


def main(environment: Mapping[str, str]) -> int:
    """Build the gateway and serve; 1 when it cannot be built."""
    api = RuntimeApi(environment["AWS_LAMBDA_RUNTIME_API"])
    try:
        handler = build_streaming(environment)
    except Exception as error:
        api.refuse_start(error)
        return 1
    serve(api, handler)
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
