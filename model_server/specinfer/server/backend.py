"""What the server needs of an engine, and its life: loading in a thread, ready, failed, dead."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from specinfer.errors import SpecInferError
from specinfer.request import Delta, SamplingParams
from specinfer.server.errors import RequestError

State = Literal["loading", "ready", "failed"]

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

    def submit(
        self, prompt: Sequence[int], params: SamplingParams, sink: Callable[[Delta], None]
    ) -> Handle: ...

    def close(self) -> None: ...


class Backend:
    """Holds the engine while it loads, serves and closes."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._engine: Engine | None = None
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name="specinfer-load", daemon=True)

    def start(self) -> None:
        """Begin loading; returns at once."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._engine = self._load()
        except SpecInferError as error:
            self._error = str(error)
            log.error("the model could not be loaded: %s", error)
        except Exception as error:  # the reason goes to the log, /ping tells the platform
            self._error = f"{type(error).__name__}: {error}"
            log.exception("the model could not be loaded")

    @property
    def state(self) -> State:
        if self._engine is None:
            return "failed" if self._error is not None else "loading"
        return "ready" if self._engine.alive else "failed"

    def engine(self) -> Engine:
        """Return the ready engine; raises RequestError 503 while loading, 500 after a failure."""
        if self._engine is not None and self._engine.alive:
            return self._engine
        if self.state == "loading":
            raise RequestError(503, "model_loading", "the model is still loading", retry_after=5)
        raise RequestError(500, "engine_dead", "the engine has failed; this container must restart")

    def close(self) -> None:
        """Close the engine; one that is still loading is left to its daemon thread."""
        if self._engine is not None:
            self._engine.close()
