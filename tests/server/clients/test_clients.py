"""Client libraries as their users run them, through the SageMaker Runtime stand-in."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import venv
from pathlib import Path

import httpx
import pytest
import uvicorn

from specinfer.local.sagemaker_runtime import RuntimeSettings, SageMakerRuntime

PROBE = Path(__file__).with_name("client_probe.py")
PROMPT = "\u65e5\u672c\u8a9e \U0001f642 done "
EXPECTED = (PROMPT * 3).encode()[:40].decode(errors="ignore")
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION_NAME": "us-east-1",
}


@pytest.fixture
def runtime(server, wait_until):
    """Return a function that starts a stand-in whose stream parts have at most so many bytes."""
    stops = []

    def start(part_bytes):
        settings = RuntimeSettings(container=str(server.client.base_url), part_bytes=part_bytes)
        address = {}

        async def run():
            async with httpx.AsyncClient(timeout=None) as client:
                app = SageMakerRuntime(settings, client).app()
                config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off")
                address["server"] = uvicorn.Server(config)
                await address["server"].serve()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        stops.append((address, thread))
        wait_until(lambda: "server" in address and address["server"].started)
        port = address["server"].servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    yield start
    for address, thread in stops:
        address["server"].should_exit = True
        thread.join()


def ask(python, client, runtime, server):
    """Return the texts that the client got."""
    address = str(server.client.base_url).rstrip("/")
    done = subprocess.run(
        [python, str(PROBE), client, runtime, address],
        env=os.environ | CREDENTIALS,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("part_bytes", [None, 1, 7])
def test_boto3_reads_whole_and_stream_wherever_parts_are_cut(server, runtime, part_bytes):
    texts = ask(sys.executable, "boto3", runtime(part_bytes), server)
    assert texts == [EXPECTED] * 2


def test_curl_reads_a_stream(server):
    body = json.dumps({"inputs": "abc", "stream": True, "parameters": {"max_new_tokens": 7}})
    url = f"{server.client.base_url}/invocations"
    done = subprocess.run(["curl", "-sN", url, "-d", body], capture_output=True, text=True)
    assert done.stdout.count("data: ") == 3
    assert '"generated_text":"abcabca"' in done.stdout


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Return a function from requirements to the Python of a virtual environment with them.

    SPECINFER_TEST_VENVS keeps the environments, hundreds of megabytes each, for the next run.
    """
    kept = os.environ.get("SPECINFER_TEST_VENVS")
    home = Path(kept) if kept else tmp_path_factory.mktemp("venvs")

    def make(*requirements):
        folder = home / "+".join(requirements).replace("==", "-")
        python = folder / "bin" / "python"
        if not (folder / "ready").exists():
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *requirements], check=True)
            (folder / "ready").touch()
        return str(python)

    return make


OPEN = ("openai==3.57.0", "litellm==1.110.2", "langchain-aws==1.9.1")
HEAVY = [
    ("openai", OPEN, 3),
    ("litellm", OPEN, 4),
    ("langchain", OPEN, 2),
    ("sagemaker2", ("sagemaker==2.257.7",), 1),
    ("sagemaker3", ("sagemaker-core==2.27.0",), 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("client", "requirements", "texts"), HEAVY)
def test_a_client_library_gets_the_text(server, runtime, environment, client, requirements, texts):
    got = ask(environment(*requirements), client, runtime(7), server)
    assert got == [EXPECTED] * texts
