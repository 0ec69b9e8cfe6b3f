"""What the gateway adds to a direct invoke, and what a cache hit costs, paired in one run.

    python benchmarks/gateway.py [--requests 200] [--model-ms 20]

Three processes, as in the laptop stack: a SageMaker Runtime that answers after --model-ms, moto's
DynamoDB, and this one, which calls the Lambda handler with API Gateway events.  Every round asks
each way once, so that all see the same machine.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ANSWER = json.dumps(
    [{"generated_text": "x" * 600, "details": {"finish_reason": "length", "generated_tokens": 128}}]
).encode()
COLD = "import time; import handler; print(time.process_time() * 1000)"


class Context:
    """Lambda's context, with all the time there is."""

    aws_request_id = "bench"

    def get_remaining_time_in_millis(self) -> int:
        return 29_000


def stand_in(port: int, model_ms: float) -> None:
    """Answer every invocation after a fixed time."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # one packet an answer

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(model_ms / 1000)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(ANSWER)))
            self.end_headers()
            self.wfile.write(ANSWER)

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(port: int, *command: str) -> Iterator[str]:
    """Run a server until its port answers, and end it afterwards."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, *command], stdout=quiet, stderr=quiet)
    try:
        deadline = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} did not start")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def event(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "resource": "/generate",
        "path": "/generate",
        "httpMethod": "POST",
        "headers": {"Content-Type": "application/json"},
        "requestContext": {"requestId": "bench", "stage": "v1", "path": "/v1/generate"},
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }


def ways(handler: Callable[..., Any], runtime: Any) -> dict[str, Callable[[int], None]]:
    """The ways of asking, each given the number of the round."""

    def ask(expected: str, body: dict[str, Any]) -> None:
        answer = handler(event(body), Context())
        state = answer["multiValueHeaders"]["X-Cache"][0]
        assert (answer["statusCode"], state) == (200, expected), answer

    def direct(_: int) -> None:
        body = json.dumps({"inputs": "hi", "parameters": {"max_new_tokens": 128}}).encode()
        arguments = {"EndpointName": "e", "Body": body, "ContentType": "application/json"}
        runtime.invoke_endpoint(**arguments)["Body"].read()

    sampled = {"inputs": "hi", "parameters": {"temperature": 0.7}}
    return {
        "direct invoke": direct,
        "gateway, not cacheable": lambda i: ask("BYPASS", sampled),
        "gateway, miss kept": lambda i: ask("MISS", {"inputs": f"hi {i}"}),
        "gateway, hit": lambda i: ask("HIT", {"inputs": f"hi {i}"}),
    }


def measure(requests: int, runtime_url: str, dynamodb_url: str) -> dict[str, list[float]]:
    """Return the milliseconds of every way, round by round."""
    os.environ |= {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": runtime_url,
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_url,
        "SPECINFER_ENDPOINT": "specinfer",
        "SPECINFER_CACHE_TABLE": "cache",
        "SPECINFER_MODEL_REVISION": "r1",
    }
    sys.path.insert(0, str(ROOT / "lambda"))
    import boto3

    from specinfer_gateway.wiring import build

    boto3.client("dynamodb").create_table(
        TableName="cache",
        KeySchema=[{"AttributeName": "cache_key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cache_key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    asked = ways(build(os.environ), boto3.client("sagemaker-runtime"))
    times: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(-10, requests):  # ten rounds to warm up
        for name, ask in asked.items():
            started = time.perf_counter()
            ask(number)
            if number >= 0:
                times[name].append((time.perf_counter() - started) * 1000)
    return times


def cold_start() -> float:
    """Return the CPU milliseconds of importing the handler, clients made: the best of five."""
    environment = {"SPECINFER_ENDPOINT": "e", "AWS_DEFAULT_REGION": "us-east-1"}
    command = [sys.executable, "-c", COLD]
    run = [subprocess.check_output(command, cwd=ROOT / "lambda", env=environment) for _ in range(5)]
    return min(map(float, run))


def report(times: dict[str, list[float]], model_ms: float) -> str:
    """Return the table; `adds` is the median of the differences round by round."""
    direct = times["direct invoke"]
    lines = [f"{'way':<24}{'p50 ms':>9}{'p95 ms':>9}{'adds ms':>9}{'ratio':>8}"]
    for name, values in times.items():
        p50, p95 = statistics.median(values), statistics.quantiles(values, n=20)[-1]
        adds = statistics.median(a - b for a, b in zip(values, direct, strict=True))
        ratio = p50 / statistics.median(direct)
        lines.append(f"{name:<24}{p50:>9.2f}{p95:>9.2f}{adds:>9.2f}{ratio:>8.2f}")
    cores, python = os.cpu_count(), platform.python_version()
    lines.append(f"model {model_ms:.0f} ms, {len(direct)} rounds, {cores} cores, Python {python}")
    lines.append(f"cold start: {cold_start():.0f} ms of CPU to import the handler")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=200, help="rounds (%(default)s)")
    parser.add_argument("--model-ms", type=float, default=20, help="(%(default)s)")
    parser.add_argument("--stand-in", type=int, metavar="PORT", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.stand_in:
        stand_in(chosen.stand_in, chosen.model_ms)
        return 0
    runtime, dynamodb = free_port(), free_port()
    with ExitStack() as stack:
        script = [__file__, "--stand-in", str(runtime), "--model-ms", str(chosen.model_ms)]
        runtime_url = stack.enter_context(running(runtime, *script))
        moto = ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(dynamodb)]
        dynamodb_url = stack.enter_context(running(dynamodb, *moto))
        # The handler's log and figures go to stdout: out of the way, at their true cost.
        with Path(os.devnull).open("w") as nowhere:
            sys.stdout = nowhere
            times = measure(chosen.requests, runtime_url, dynamodb_url)
            sys.stdout = sys.__stdout__
    print(report(times, chosen.model_ms))
    return 0


if __name__ == "__main__":
    sys.exit(main())
