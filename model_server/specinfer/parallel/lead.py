"""Rank 0: the engine, its requests by number, and signs of life to the process above."""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

from specinfer.engine import Engine, Handle
from specinfer.errors import SpecInferError
from specinfer.parallel.group import Group
from specinfer.parallel.messages import (
    Answer,
    Beat,
    Cancel,
    Close,
    FromRank,
    Ready,
    Refused,
    Start,
    Submit,
    ToRank,
)
from specinfer.parallel.sharded import ShardedLM
from specinfer.request import Delta

BEAT_S = 1.0
FAILED = 70  # EX_SOFTWARE

log = logging.getLogger(__name__)


def lead(group: Group, connection: Connection) -> None:
    """Build the engine that the first message names and serve it until told to close."""
    start: Start = connection.recv()
    inbox = Inbox(connection)
    group.tell(start.config)
    config = replace(
        start.config,
        # The process above has its own limit, before which nothing comes here.
        queue_limit=start.config.queue_limit + start.config.max_batch,
        quantization="none",  # which auto is for an LLM of several ranks
    )
    try:
        engine = Engine.over(ShardedLM.of(config, group), config)
    except SpecInferError as error:
        connection.send(Refused(str(error)))
        raise
    inbox.loading = False
    Lead(engine, connection, start.step_limit_s).serve(inbox)
    engine.close()
    group.tell(None)


class Inbox:
    """The messages to come, read by a thread that also sees the process above die."""

    def __init__(self, connection: Connection) -> None:
        self.loading = True
        self._connection = connection
        self._messages: queue.SimpleQueue[ToRank] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="specinfer-inbox", daemon=True).start()

    def __iter__(self) -> Iterator[Submit | Cancel]:
        """Yield messages until it is time to close."""
        while isinstance(message := self._messages.get(), Submit | Cancel):
            yield message

    def _read(self) -> None:
        try:
            while True:
                self._messages.put(self._connection.recv())
        except (EOFError, OSError):
            if self.loading:
                _end("the process that takes requests is gone")
            self._messages.put(Close())


class Lead:
    """An engine at the end of a connection."""

    def __init__(self, engine: Engine, connection: Connection, step_limit_s: float) -> None:
        self._engine = engine
        self._connection = connection
        self._step_limit_s = step_limit_s
        self._sending = threading.Lock()
        self._handles: dict[int, Handle] = {}
        self._over = threading.Event()
        self._failed = False

    def serve(self, inbox: Inbox) -> None:
        """Take messages until there are no more."""
        engine = self._engine
        self._send(
            Ready(
                model_id=engine.model_id,
                revision=engine.revision,
                vocab=engine.vocab,
                max_context=engine.max_context,
                pages=engine.cache.pages,
            )
        )
        threading.Thread(target=self._watch, name="specinfer-beat", daemon=True).start()
        for message in inbox:
            self._take(message)
        self._over.set()

    def _take(self, message: Submit | Cancel) -> None:
        number = message.number
        if isinstance(message, Cancel):
            if handle := self._handles.get(number):
                handle.cancel()
            return
        try:
            handle = self._engine.submit(message.prompt, message.params, self._sink(number))
        except SpecInferError as error:  # the process above has checked all that it can
            self._send(Answer(number, Delta.end("error", str(error))))
            return
        self._handles[number] = handle
        if handle.request.finish_reason is not None:  # it has ended before it was noted
            self._handles.pop(number, None)

    def _sink(self, number: int) -> Callable[[Delta], None]:
        def sink(delta: Delta) -> None:
            if self._engine.failed:
                self._fail()
                return
            if delta.finish_reason is not None:
                self._handles.pop(number, None)
            self._send(Answer(number, delta))

        return sink

    def _fail(self) -> None:
        if not self._over.is_set():
            self._failed = True
            self._over.set()

    def _send(self, message: FromRank) -> None:
        with self._sending, contextlib.suppress(OSError):  # `serve` learns it from its own end
            self._connection.send(message)

    def _watch(self) -> None:
        """Give signs of life; end the process, and with it all ranks, when the engine has none."""
        while not self._over.wait(BEAT_S):
            if self._engine.step_s > self._step_limit_s:
                _end(f"a step has taken over {self._step_limit_s:g} s: a rank hangs")
            self._send(Beat(self._engine.running, self._engine.cache.used))
        if self._failed:
            _end("the engine has failed")


def _end(reason: str) -> None:
    log.error("%s; all ranks end", reason)
    logging.shutdown()
    os._exit(FAILED)  # the main thread may be inside a collective that never returns
