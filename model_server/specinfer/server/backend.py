"""What the server needs of an engine, and its life: loading in a thread, ready, failed, dead."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from specinfer.errors import SpecInferError
from specinfer.request import Delta, SamplingParams
from specinfer.server.errors import RequestError

State = Literal["loading", "ready", "failed"]
WATCH_S = 0.2  # how often an engine that may be replaced is asked whether it is alive

log = logging.getLogger(__name__)


class Handle(Protocol):
    """A submitted request."""

    def cancel(self) -> None:
        """Free its slots within one step; harmless once it has ended."""


class Pages(Protocol):
    """The KV cache's pages."""

    @property
    def used(self) -> int: ...

    @property
    def pages(self) -> int: ...


class Engine(Protocol):
    """specinfer.engine.Engine as the server sees it; every method may be called from any thread."""

    @property
    def model_id(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def max_context(self) -> int: ...

    @property
    def alive(self) -> bool: ...

    @property
    def running(self) -> int: ...

    @property
    def queued(self) -> int: ...

    @property
    def cache(self) -> Pages: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def prepare(self, params: SamplingParams) -> None:
        """Compile the grammar, which may take a second; raises ParameterError."""

    def submit(
        self, prompt: Sequence[int], params: SamplingParams, sink: Callable[[Delta], None]
    ) -> Handle: ...

    def close(self) -> None: ...


class Backend:
    """Holds the engine while it loads, serves and closes."""

    def __init__(self, load: Callable[[], Engine], *, replaces: bool = False) -> None:
        """A backend that replaces loads a new engine when the one it has dies."""
        self._load = load
        self._replaces = replaces
        self._engine: Engine | None = None
        self._error: str | None = None
        self._replacing = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="specinfer-load", daemon=True)

    def start(self) -> None:
        """Begin loading; returns at once."""
        self._thread.start()

    def _run(self) -> None:
        self._load_one()
        while self._replaces and self._engine is not None and not self._closing.wait(WATCH_S):
            if not self._engine.alive:
                log.error("the engine has died; another is loaded")
                self._replacing, self._engine = True, None
                self._load_one()

    def _load_one(self) -> None:
        try:
            engine = self._load()
        except SpecInferError as error:
            self._error = str(error)
            log.error("the model could not be loaded: %s", error)
        except Exception as error:  # the reason goes to the log, /ping tells the platform
            self._error = f"{type(error).__name__}: {error}"
            log.exception("the model could not be loaded")
        else:
            self._engine = engine
            if self._closing.is_set():
                engine.close()

    @property
    def state(self) -> State:
        engine = self._engine
        if engine is None:
            return "failed" if self._error is not None else "loading"
        if engine.alive:
            return "ready"
        return "loading" if self._replaces else "failed"

    def engine(self) -> Engine:
        """Return the ready engine; raises RequestError 503 while loading, 500 after a failure."""
        engine = self._engine
        if engine is not None and engine.alive:
            return engine
        if self.state == "loading":
            raise restarting() if engine is not None or self._replacing else loading()
        raise RequestError(500, "engine_dead", "the engine has failed; this container must restart")

    def close(self) -> None:
        """Close the engine; one that is still loading is left to its daemon thread."""
        self._closing.set()
        if self._engine is not None:
            self._engine.close()


def loading() -> RequestError:
    return RequestError(503, "model_loading", "the model is still loading", retry_after=5)


def restarting() -> RequestError:
    message = "a process that runs the model has died; it is being restarted"
    return RequestError(503, "engine_restarting", message, retry_after=5)
