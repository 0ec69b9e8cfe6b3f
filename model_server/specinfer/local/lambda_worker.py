"""One Lambda execution environment: a process that runs a handler on one event at a time.

Run as a script: it imports the handler's folder and the standard library, nothing of ours, as
in Lambda. A line of JSON on stdin is an event, a line on stdout is its result; stdout itself is
given to the log before the handler is imported. When stdin ends, so does the process.

https://docs.aws.amazon.com/lambda/latest/dg/python-context.html
"""

import importlib
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import IO, Any

Handler = Callable[[dict[str, Any], "LambdaContext"], Any]


class LambdaContext:
    """What a handler may ask about its invocation."""

    client_context = None
    identity = None

    def __init__(self, request_id: str, seconds: float) -> None:
        name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_name = name
        self.function_version = "$LATEST"
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:123456789012:function:{name}"
        self.memory_limit_in_mb = os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
        self.aws_request_id = request_id
        self.log_group_name = f"/aws/lambda/{name}"
        self.log_stream_name = "local"
        self._ends_at = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self._ends_at - time.monotonic()) * 1000))


def main() -> None:
    """Arguments: the handler's folder, and `module.function` in it."""
    folder, entry = sys.argv[1:]
    results = _take_stdout()
    events: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_feed, args=(events,), daemon=True).start()
    sys.path.insert(0, folder)
    try:
        handler = _load(entry)
    except Exception as error:
        _write(results, _failure(error))
        sys.exit(1)
    _write(results, {"ready": True})
    while True:
        _write(results, _run(handler, json.loads(events.get())))


def _take_stdout() -> IO[str]:
    """The real stdout, for results only; a handler's prints (metrics, logs) go to stderr."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return results


def _feed(events: "queue.Queue[str]") -> None:
    """Even in the midst of an event, nobody is left to answer once stdin has ended."""
    for line in sys.stdin:
        events.put(line)
    os._exit(0)


def _load(entry: str) -> Handler:
    module, function = entry.rsplit(".", 1)
    handler: Handler = getattr(importlib.import_module(module), function)
    return handler


def _run(handler: Handler, job: dict[str, Any]) -> dict[str, Any]:
    context = LambdaContext(job["request_id"], job["seconds"])
    try:
        return {"result": json.loads(json.dumps(handler(job["event"], context)))}
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> dict[str, Any]:
    traceback.print_exception(error)
    return {"error": f"{type(error).__name__}: {error}"}


def _write(results: IO[str], document: dict[str, Any]) -> None:
    results.write(json.dumps(document) + "\n")
    results.flush()


if __name__ == "__main__":
    main()
