"""The engine as the process that takes requests sees it: its ranks are child processes.

It has one life.  When any rank dies or hangs, all are ended, every open request ends as `lost`,
and whoever holds this object may load another.
"""

import contextlib
import itertools
import logging
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from specinfer.config import EngineConfig
from specinfer.errors import ConfigError, EngineDeadError, QueueFullError
from specinfer.intake import Intake
from specinfer.parallel.check import check_split
from specinfer.parallel.launch import (
    Command,
    Nodes,
    RanksLostError,
    environment,
    launch,
    torchrun,
)
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
from specinfer.request import Delta, Sink
from specinfer.sampling import SamplingParams
from specinfer.tokenizer import Tokenizer

CLOSING_S = 10.0

LOST = Delta.end("lost", "the processes that run the model have ended; ask again")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """After how many seconds ranks that still run are taken to hang."""

    step_s: float = 60.0
    silence_s: float = 30.0  # rank 0 gives a sign of life every second


@dataclass(slots=True)
class Pages:
    """The KV cache's pages, as last heard."""

    pages: int
    used: int = 0


@dataclass(frozen=True, slots=True)
class RemoteHandle:
    """A submitted request, for giving it up."""

    engine: "RemoteEngine"
    number: int

    def cancel(self) -> None:
        """End the request within one step; harmless once it has ended."""
        self.engine.send(Cancel(self.number))


class RemoteEngine(Intake):
    """An engine of several ranks.  `submit` may be called from anywhere."""

    def __init__(
        self,
        config: EngineConfig,
        process: subprocess.Popen[bytes],
        connection: Connection,
        ready: Ready,
        limits: Limits,
    ) -> None:
        tokenizer = Tokenizer(config.model)
        super().__init__(tokenizer, vocab=ready.vocab, max_context=ready.max_context)
        self.model_id = ready.model_id
        self.revision = ready.revision
        self.cache = Pages(ready.pages)
        self.alive = True
        self.running = 0
        self._config = config
        self._silence_s = limits.silence_s
        self._process = process
        self._connection = connection
        self._numbers = itertools.count()
        self._open: dict[int, Sink] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._closing = False
        self._reader = threading.Thread(target=self._read, name="specinfer-ranks", daemon=True)
        self._reader.start()

    @classmethod
    def load(
        cls,
        config: EngineConfig,
        command: Command | None = None,
        limits: Limits = Limits(),
    ) -> "RemoteEngine":
        """Start the ranks and wait for them; raises ConfigError, ModelFolderError, RanksLostError.

        The command to start them is torchrun's unless given.
        """
        nodes = Nodes.named_in(os.environ)
        check_split(config, nodes.ranks_here(config.tensor_parallel))
        program = command or (lambda address: torchrun(config.tensor_parallel, nodes, address))
        process, connection = launch(program, environment(config, nodes))
        try:
            ready = _begin(connection, Start(config, limits.step_s))
        except BaseException:
            _end(process)
            raise
        return cls(config, process, connection, ready, limits)

    @property
    def queued(self) -> int:
        """Requests that wait for a place in the batch."""
        return max(0, len(self._open) - self.running)

    def submit(self, prompt: Sequence[int], params: SamplingParams, sink: Sink) -> RemoteHandle:
        """Queue a prompt; `sink` gets its deltas from a thread of this process.

        Raises ParameterError, ContextLengthError, QueueFullError or EngineDeadError.
        """
        self.check(prompt, params)
        self.prepare(params)
        if self._closing:
            raise EngineDeadError("the engine is closed")
        if len(self._open) >= self._config.queue_limit + self._config.max_batch:
            raise QueueFullError(self._config.queue_limit)
        number = next(self._numbers)
        with self._lock:
            lost = not self.alive
            if not lost:
                self._open[number] = sink
        if lost:
            sink(LOST)
        else:
            self.send(Submit(number, tuple(prompt), params))
        return RemoteHandle(self, number)

    def send(self, message: ToRank) -> None:
        """Tell rank 0; if it is gone, the reader knows."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(message)

    def close(self) -> None:
        """End all ranks after the current step; unfinished requests end as `lost`."""
        self._closing = True
        self.send(Close())
        self._reader.join(CLOSING_S)
        self._process.kill()
        self._reader.join()

    def _read(self) -> None:
        try:
            while self._connection.poll(self._silence_s):
                self._take(self._connection.recv())
            log.error("rank 0 has been silent for %g s", self._silence_s)
        except (EOFError, OSError):
            if not self._closing:
                log.error("a rank has ended; all end")
        self._lose()

    def _take(self, message: FromRank) -> None:
        if isinstance(message, Beat):
            self.running, self.cache.used = message.running, message.pages_used
        elif isinstance(message, Answer):
            sink = self._open.get(message.number)
            if message.delta.finish_reason is not None:
                self._open.pop(message.number, None)
            if sink is not None:
                self._hand_out(message, sink)

    def _hand_out(self, answer: Answer, sink: Sink) -> None:
        try:
            sink(answer.delta)
        except Exception:
            self._open.pop(answer.number, None)
            self.send(Cancel(answer.number))

    def _lose(self) -> None:
        """End the ranks that are left and all open requests, then this engine."""
        _end(self._process)
        with self._lock:
            lost, self._open = self._open, {}
            for sink in lost.values():
                with contextlib.suppress(Exception):
                    sink(LOST)
            self.alive = False
            self.running = 0


def _begin(connection: Connection, start: Start) -> Ready:
    """Wait until the ranks have loaded; raises ConfigError or RanksLostError."""
    try:
        connection.send(start)
        ready: Ready | Refused = connection.recv()
    except (EOFError, OSError):
        raise RanksLostError("the ranks ended while they loaded; their log says why") from None
    if isinstance(ready, Refused):
        raise ConfigError(ready.reason)
    return ready


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun; its ranks have asked Linux to die with it."""
    process.kill()
    process.wait()
