"""The real handler, DynamoDB and stand-ins around a fake container, in one running stack."""

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from specinfer.local import stack
from specinfer.local.ask import ask, chat_body
from specinfer.local.dynamodb import TABLE
from specinfer.local.errors import LocalStackError
from specinfer.local.ports import Listeners, Ports
from specinfer.local.stack import Stack, StackSettings
from specinfer.model_store import Progress

GATEWAY = Path(__file__).parents[2] / "lambda"
ANY = Ports(rest=0, container=0, runtime=0, dynamodb=0)


@pytest.fixture
def settings(tmp_path: Path, fake_module: str) -> StackSettings:
    model = tmp_path / "tiny"
    model.mkdir()
    return StackSettings(model=model, gateway=GATEWAY, logs=tmp_path, module=fake_module)


@pytest.fixture
def running(loop: Any, settings: StackSettings) -> Stack:
    listeners = Listeners(ANY)
    loop.enter(_closing(listeners))
    started: Stack = loop.enter(stack.running(settings, listeners, Progress()))
    return started


class _closing:
    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    async def __aenter__(self) -> Listeners:
        return self._listeners

    async def __aexit__(self, *error: Any) -> None:
        self._listeners.__exit__(*error)


def _post(running: Stack, text: str) -> httpx.Response:
    url = f"{running.rest}/v1/chat/completions"
    return httpx.post(url, json=chat_body(text, 8), timeout=20, trust_env=False)


def _cached(running: Stack, aws: Callable[[str, str], Any]) -> list[Any]:
    items = aws("dynamodb", running.dynamodb).scan(TableName=TABLE)["Items"]
    return [item for item in items if "hang" in str(item)]


def test_a_repeated_question_comes_from_the_cache(loop: Any, running: Stack) -> None:
    first = loop.run(ask(running.client, running.rest, "hello", 8))
    again = loop.run(ask(running.client, running.rest, "hello", 8))
    assert first.text == again.text == "echo hello"
    assert (first.cache, again.cache) == ("MISS", "HIT")
    assert first.speculation["tokens_per_step"] == 2.5


def test_a_refusal_of_the_model_reaches_the_caller(running: Stack) -> None:
    answer = _post(running, "invalid")
    assert answer.status_code == 400
    assert "the model says no" in answer.text


def test_a_container_killed_midway_is_a_clean_error_and_nothing_is_cached(
    running: Stack,
    settings: StackSettings,
    eventually: Callable[..., None],
    aws: Callable[[str, str], Any],
) -> None:
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(_post, running, "hang")
        eventually((settings.model / "hanging").exists)
        os.kill(running.container.pid, signal.SIGKILL)
        answer = asked.result()
    assert answer.status_code in (502, 503)
    assert "error" in answer.json()
    assert "123456789012" not in answer.text
    assert not _cached(running, aws)


def test_a_dying_container_ends_the_stack_with_its_last_words(loop: Any, running: Stack) -> None:
    async def serve() -> None:
        await running.client.post(f"{running.container.url}/invocations", json=chat_body("exit", 8))
        await asyncio.Event().wait()

    with pytest.raises(LocalStackError, match=r"ended \(exit status 7\): told to end"):
        loop.run(stack.guarded(running.container, _ignoring(serve())))


async def _ignoring(work: Any) -> None:
    try:
        await work
    except httpx.TransportError:
        await asyncio.Event().wait()


def test_a_container_that_cannot_start_is_told_at_once(
    loop: Any, settings: StackSettings, tmp_path: Path
) -> None:
    (tmp_path / "broken").mkdir()
    broken = StackSettings(
        model=tmp_path / "broken", gateway=GATEWAY, logs=tmp_path, module=settings.module
    )

    async def start() -> None:
        with Listeners(ANY) as listeners:
            async with stack.running(broken, listeners, Progress()):
                pass

    with pytest.raises(LocalStackError, match="the model is broken"):
        loop.run(start())
