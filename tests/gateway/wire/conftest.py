"""The services as HTTP servers on loopback: SageMaker Runtime, and Lambda's own Runtime API."""

import base64
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ARN = "arn:aws:lambda:us-east-1:123456789012:function:gateway"
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
ROOT = Path(__file__).parents[3]


class Server:
    """A threaded HTTP/1.1 server on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else 40 ms of delayed acknowledgements

            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                outer.get(self)

            def do_POST(self) -> None:
                outer.post(self)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.address = f"127.0.0.1:{self._http.server_port}"
        self.url = f"http://{self.address}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def get(self, http: BaseHTTPRequestHandler) -> None:
        reply(http, 404, b"{}")

    def post(self, http: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def reply(http: Any, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    http.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        http.send_header(name, value)
    http.end_headers()
    http.wfile.write(body)


@dataclass
class Post:
    """One request that a service got."""

    path: str
    body: Any
    headers: dict[str, str]


class FakeService(Server):
    """An AWS service by wire: each POST is kept, then `behave` answers it as SageMaker would."""

    def __init__(self) -> None:
        super().__init__()
        self.posts: list[Post] = []
        self.release = threading.Event()  # ends every hanging answer
        self.behave: Callable[[Any, Any], None] = self.answer

    def post(self, http: Any) -> None:
        text = http.rfile.read(int(http.headers.get("Content-Length") or 0))
        body = json.loads(text) if text else None  # an asynchronous one's is in S3
        self.posts.append(Post(http.path, body, dict(http.headers)))
        self.behave(http, body)

    @staticmethod
    def answer(http: Any, body: Any) -> None:
        details = {"finish_reason": "length", "generated_tokens": 5}
        answer = [{"generated_text": "an answer", "details": details}]
        reply(http, 200, json.dumps(answer).encode())

    def hang(self, http: Any, body: Any) -> None:
        self.release.wait(20)
        http.close_connection = True

    @staticmethod
    def drop(http: Any, body: Any) -> None:
        http.close_connection = True
        http.connection.close()

    @staticmethod
    def fail(status: int, kind: str, **members: Any) -> Callable[[Any, Any], None]:
        document = json.dumps({"__type": kind, "Message": None, **members}).encode()
        headers = {"x-amzn-ErrorType": kind, "Content-Type": "application/json"}
        return lambda http, body: reply(http, status, document, headers)

    @staticmethod
    def stream(*frames: bytes, pause: float = 0.0, cut: bool = False) -> Callable[[Any, Any], None]:
        """Send event-stream frames as chunks; cut leaves the last chunk out."""

        def behave(http: Any, body: Any) -> None:
            http.send_response(200)
            http.send_header("Content-Type", "application/vnd.amazon.eventstream")
            http.send_header("X-Amzn-SageMaker-Content-Type", "text/event-stream")
            http.send_header("Transfer-Encoding", "chunked")
            http.end_headers()
            for frame in frames:
                http.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))
                http.wfile.flush()
                time.sleep(pause)
            if cut:
                http.close_connection = True
            else:
                http.wfile.write(b"0\r\n\r\n")

        return behave


def load_builder() -> Any:
    """The package builder, a script outside every package."""
    path = ROOT / "tools" / "build_lambda.py"
    spec = importlib.util.spec_from_file_location("build_lambda", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def builder() -> Any:
    return load_builder()


@pytest.fixture(scope="session")
def lambda_interpreter(builder: Any) -> str:
    """An interpreter of Lambda's version."""
    interpreter: str | None = builder.find_python("3.12")
    if interpreter is None:
        pytest.skip("no python3.12 on this machine: the package is not run on Lambda's Python")
    return interpreter


@pytest.fixture
def sagemaker() -> Iterator[FakeService]:
    server = FakeService()
    yield server
    server.release.set()
    server.close()


@pytest.fixture
def table() -> Iterator[FakeService]:
    """DynamoDB's place, for its faults: the wire is the same."""
    server = FakeService()
    yield server
    server.release.set()
    server.close()


@dataclass
class Result:
    """What a function sent back: parts with their times in seconds, or an error."""

    parts: list[tuple[float, bytes]] = field(default_factory=list)
    error: Any = None
    streamed: bool = False

    @property
    def payload(self) -> Any:
        return json.loads(b"".join(data for _, data in self.parts))


class Function(Server):
    """Lambda for one function: the Runtime API, and the process that asks it for events.

    https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
    """

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        super().__init__()
        self._events: queue.Queue[tuple[str, bytes, float]] = queue.Queue()
        self._results: dict[str, queue.Queue[Result]] = {}
        self.init_error: Any = None
        self.log: list[str] = []
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=self._environment(folder) | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _environment(self, folder: Path) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "AWS_LAMBDA_RUNTIME_API": self.address,
            "LAMBDA_TASK_ROOT": str(folder),
            "_HANDLER": "handler.lambda_handler",
            "AWS_LAMBDA_FUNCTION_NAME": "gateway",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
            "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/gateway",
            "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.log.extend(line.rstrip() for line in self.process.stdout)

    def invoke(self, event: Any, seconds: float = 29.0) -> Result:
        """Send an event and wait for its result."""
        request_id = str(uuid.uuid4())
        self._results[request_id] = queue.Queue()
        self._events.put((request_id, json.dumps(event).encode(), time.time() + seconds))
        try:
            return self._results[request_id].get(timeout=seconds + 5)
        except queue.Empty:
            raise AssertionError("\n".join(self.log)) from None

    def get(self, http: Any) -> None:
        request_id, event, deadline = self._events.get()
        if not request_id:
            http.close_connection = True
            return
        headers = {
            "Content-Type": "application/json",  # without it awslambdaric crashes
            "Lambda-Runtime-Aws-Request-Id": request_id,
            "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": ARN,
            "Lambda-Runtime-Trace-Id": TRACE,
        }
        reply(http, 200, event, headers)

    def post(self, http: Any) -> None:
        *_, request_id, kind = http.path.split("/")
        result = Result(streamed=http.headers.get(MODE) == "streaming")
        trailers = _receive(http, result.parts)
        if ERROR_BODY in trailers:
            result.error = json.loads(base64.b64decode(trailers[ERROR_BODY]))
        elif kind == "error":
            result.error = result.payload
        if request_id == "init":
            self.init_error = result.payload
        else:
            self._results[request_id].put(result)
        reply(http, 202, b"{}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._events.put(("", b"", 0.0))
        self._reader.join(5)
        if self.process.stdout:
            self.process.stdout.close()
        super().close()


MODE = "Lambda-Runtime-Function-Response-Mode"
ERROR_BODY = "lambda-runtime-function-error-body"


def _receive(http: Any, parts: list[tuple[float, bytes]]) -> dict[str, str]:
    """Read a body, chunked or not; return its trailers."""
    if http.headers.get("Transfer-Encoding") != "chunked":
        parts.append((time.monotonic(), http.rfile.read(int(http.headers["Content-Length"]))))
        return {}
    while size := int(http.rfile.readline(), 16):
        parts.append((time.monotonic(), http.rfile.read(size)))
        http.rfile.readline()
    trailers = {}
    while line := http.rfile.readline().strip():
        name, _, value = line.decode().partition(":")
        trailers[name.lower()] = value.strip()
    return trailers


@pytest.fixture
def start_function() -> Iterator[Callable[..., Function]]:
    """Start functions that end with the test."""
    running: list[Function] = []

    def start(command: list[str], folder: Path, **environment: str) -> Function:
        running.append(Function(command, folder, environment))
        return running[-1]

    yield start
    for function in running:
        function.close()


@pytest.fixture
def streaming(start_function: Callable[..., Function], sagemaker: FakeService) -> Function:
    """The streaming runtime on this interpreter, in front of the fake SageMaker."""
    return start_function(
        ["sh", str(ROOT / "lambda" / "stream_bootstrap"), sys.executable, "bootstrap.py"],
        ROOT / "lambda",
        SPECINFER_ENDPOINT="specinfer",
        AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME=sagemaker.url,
    )
