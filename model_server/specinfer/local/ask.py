"""One question through the whole stack, and what came back with it."""

import time
from dataclasses import dataclass
from typing import Any

import httpx

from specinfer.local.errors import LocalStackError


@dataclass(frozen=True, slots=True)
class Answer:
    """A chat answer; `speculation` holds the engine's figures for it."""

    text: str
    seconds: float
    cache: str
    new_tokens: int
    speculation: dict[str, Any]


def chat_body(prompt: str, max_tokens: int) -> dict[str, Any]:
    """A greedy request: only such (and seeded ones) are cached."""
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }


async def ask(client: httpx.AsyncClient, rest: str, prompt: str, max_tokens: int) -> Answer:
    """POST /v1/chat/completions at the REST API. Raises LocalStackError unless it is answered."""
    started = time.monotonic()
    response = await client.post(f"{rest}/v1/chat/completions", json=chat_body(prompt, max_tokens))
    seconds = time.monotonic() - started
    if response.status_code != 200:
        raise LocalStackError(f"the REST API answered {response.status_code}: {response.text}")
    document = response.json()
    return Answer(
        text=document["choices"][0]["message"]["content"],
        seconds=seconds,
        cache=response.headers.get("x-cache", "none"),
        new_tokens=document["usage"]["completion_tokens"],
        speculation=document["usage"]["speculation"],
    )
