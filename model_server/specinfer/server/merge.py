"""Several streams of one request as one, each item with the number of its stream."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")


async def merged(streams: Sequence[AsyncIterator[T]]) -> AsyncGenerator[tuple[int, T], None]:
    """Yield items as they come, at most one of each stream read ahead; the first error ends it."""
    waiting = {asyncio.ensure_future(_next(stream)): n for n, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                items, number = task.result(), waiting[task]
                del waiting[task]
                for item in items:
                    yield number, item
                    waiting[asyncio.ensure_future(_next(streams[number]))] = number
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _next(stream: AsyncIterator[T]) -> tuple[T, ...]:
    """Return the next item, or nothing at the end: a task cannot raise StopAsyncIteration."""
    try:
        return (await anext(stream),)
    except StopAsyncIteration:
        return ()
