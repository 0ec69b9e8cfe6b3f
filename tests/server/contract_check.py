"""The container contract as a program: starts `serve`, asks everything once, prints what failed.

Standard library only, so that it runs wherever the image's contents are:
contract_check.py SERVE MODEL_FOLDER
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

BODIES = {
    "tgi": {"inputs": "t5 t6 t7", "parameters": {"max_new_tokens": 4}},
    "completions": {"prompt": "t5 t6 t7", "max_tokens": 4, "temperature": 0},
}


def call(url: str, body: object | None = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def await_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end and process.poll() is None:
        try:
            if call(f"{url}/ping")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit("the server did not become ready")


def outside_is_unreachable() -> bool:
    try:
        socket.create_connection(("192.0.2.1", 443), timeout=0.5).close()
    except OSError:
        return True
    return False


def failures(url: str) -> list[str]:
    invocations = f"{url}/invocations"
    wrong = call(invocations, {"inputs": "t5", "parameters": {"top_p": 7}})
    checks = {
        "there is no network": outside_is_unreachable(),
        "a wrong field is named": wrong[0] == 422 and b"parameters.top_p" in wrong[1],
        "no dialect is 400": call(invocations, {})[0] == 400,
        "metrics": b"specinfer_verify_steps_total" in call(f"{url}/metrics")[1],
        "models": b'"revision"' in call(f"{url}/v1/models")[1],
    }
    for name, body in BODIES.items():
        status, answer = call(invocations, body)
        checks[name] = status == 200 and b"tokens_per_step" in answer
        status, stream = call(invocations, body | {"stream": True})
        checks[f"{name} streamed"] = status == 200 and stream.isascii() and stream.endswith(b"\n")
    return [name for name, passed in checks.items() if not passed]


def main() -> int:
    serve, model = sys.argv[1:]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"SPECINFER_MODEL": model, "SPECINFER_PORT": str(port)}
    environment = os.environ | settings | {"HF_HUB_OFFLINE": "1"}
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([serve, "serve"], env=environment) as process:
        try:
            await_ready(url, process)
            failed = failures(url)
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(30)
    failed += [f"exit status {status}"] if status else []
    print("\n".join(failed) or "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
