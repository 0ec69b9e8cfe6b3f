"""The server's application, called without a port, on a tiny real engine."""

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing

import pytest

from specinfer.errors import SpecInferError
from specinfer.fleet.call import Call, Head
from specinfer.fleet.pages import summed
from specinfer.fleet.replica import Replica
from specinfer.testing.toy import write_tiny_model


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Replica:
    model = write_tiny_model(tmp_path_factory.mktemp("fleet") / "tiny", "llama", context=4096)
    return Replica({"SPECINFER_MODEL": str(model), "SPECINFER_DTYPE": "float32"})


def call(**body: object) -> Call:
    kept = ((b"content-type", b"application/json"),)
    body = {"prompt": "abc", "temperature": 0, "ignore_eos": True} | body
    return Call("POST", "/v1/completions", headers=kept, body=json.dumps(body).encode())


def answer(replica: Replica, asked: Call) -> tuple[Head, bytes]:
    async def parts() -> tuple[Head, bytes]:
        head, *body = [part async for part in replica.answer(asked)]
        assert isinstance(head, Head)
        return head, b"".join(part for part in body if isinstance(part, bytes))

    return asyncio.run(parts())


def test_a_call_is_answered_as_over_http(replica: Replica) -> None:
    head, body = answer(replica, call(max_tokens=8))
    assert head.status == 200 and not head.streams
    assert json.loads(body)["usage"]["completion_tokens"] == 8


def test_a_stream_comes_in_pieces(replica: Replica) -> None:
    head, body = answer(replica, call(max_tokens=8, stream=True))
    assert head.streams and body.endswith(b"data: [DONE]\n\n")


def test_a_caller_who_leaves_frees_the_engine(replica: Replica) -> None:
    async def left() -> None:
        async with aclosing(replica.answer(call(max_tokens=3000, stream=True))) as parts:
            await anext(parts)
            await anext(parts)
        for _ in range(1000):
            if b"specinfer_batch_requests 0.0" in replica.page():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the request still runs")

    asyncio.run(left())


def test_pages_add_up(replica: Replica) -> None:
    answer(replica, call(max_tokens=2))
    page = replica.page()
    own, both = (
        dict(
            line.rsplit(" ", 1)
            for line in text.decode().splitlines()
            if not line.startswith("#") and "_created" not in line
        )
        for text in (page, summed([page, page]))
    )
    assert own.keys() == both.keys()
    for name, value in own.items():
        assert float(both[name]) == 2 * float(value), name


def test_settings_that_are_wrong_are_told() -> None:
    with pytest.raises(SpecInferError, match="no-such-folder is not a folder"):
        Replica({"SPECINFER_MODEL": "no-such-folder"})


def test_ray_is_imported_by_nobody_but_a_fleet() -> None:
    """Nor does it have to be installed; without it `app` says what to install."""
    blocked = "import sys; sys.modules['ray'] = None\n"
    quiet = blocked + "import specinfer.cli, specinfer.fleet, specinfer.fleet.front\n"
    subprocess.run([sys.executable, "-c", quiet], check=True)
    asked = subprocess.run(
        [sys.executable, "-c", blocked + "from specinfer.fleet import app"],
        capture_output=True,
        text=True,
    )
    assert "a fleet needs: pip install specinfer-sagemaker[ray]" in asked.stderr
