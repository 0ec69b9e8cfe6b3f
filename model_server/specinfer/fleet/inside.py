"""A call through an ASGI application of this process, part by part."""

import asyncio
from collections.abc import AsyncIterator

from starlette.types import ASGIApp, Message, Scope

from specinfer.fleet.call import Call, Head, Part


async def answered(app: ASGIApp, call: Call) -> AsyncIterator[Part]:
    """Yield the answer's head, then its body; a caller that stops listening ends the work."""
    messages: asyncio.Queue[Message | None] = asyncio.Queue()
    unread = [{"type": "http.request", "body": call.body, "more_body": False}]

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # a caller who leaves is told by cancellation
        return unread.pop()

    task = asyncio.ensure_future(app(_scope(call), receive, messages.put))
    task.add_done_callback(lambda _: messages.put_nowait(None))
    try:
        while (message := await messages.get()) is not None:
            if message["type"] == "http.response.start":
                yield Head(message["status"], tuple(message["headers"]))
            elif message.get("body"):
                yield bytes(message["body"])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _scope(call: Call) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": call.path,
        "raw_path": call.path.encode(),
        "root_path": "",
        "query_string": call.query,
        "headers": list(call.headers),
        "client": None,
        "server": None,
    }
