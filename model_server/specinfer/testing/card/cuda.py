"""torch.cuda as far as a program with one GPU asks it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from specinfer.testing.card.capture import Recording
from specinfer.testing.card.errors import CaptureError, CardError
from specinfer.testing.card.kernels import shown_to

if TYPE_CHECKING:
    from specinfer.testing.card.card import Card

MEMORY = 24 << 30  # bytes


class OnCard:
    """What each card gets its own class of, so that isinstance says the same as on a GPU."""

    card: "Card"


class Event(OnCard):
    """A place in the queue of operations."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._timed = enable_timing
        self._at: int | None = None
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        self._at, self._time = self.card.launched, time.perf_counter()

    def synchronize(self) -> None:
        if not self.query():
            self.card.wait("wait", self._at)

    def wait(self, stream: Any = None) -> None:
        """Make a stream wait, not the host."""

    def query(self) -> bool:
        return self._at is None or self._at <= self.card.seen

    def elapsed_time(self, end: "Event") -> float:
        if not (self._timed and end._timed):
            raise CardError("both events must be created with enable_timing=True")
        if not (self.query() and end.query()):
            raise CardError("device not ready")
        return (end._time - self._time) * 1e3


class Stream(OnCard):
    """A queue of operations; here all have one order."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        pass

    def wait_stream(self, stream: "Stream") -> None:
        """Make this stream wait, not the host."""

    def wait_event(self, event: Event) -> None:
        """Make this stream wait, not the host."""

    def synchronize(self) -> None:
        self.card.wait("wait")


class CUDAGraph(OnCard):
    """Holds a recording."""

    recording: Recording | None = None

    def replay(self) -> None:
        if self.recording is None or self.card.recording is not None:
            raise CaptureError("replay of a graph that is not captured, or within a capture")
        self.card.launched += self.recording.replay()


class Graph(OnCard):
    """Records what happens within."""

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
    ) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self.card.wait("wait")
        self.card.recording = Recording()

    def __exit__(self, *_: object) -> None:
        recording, self.card.recording = self.card.recording, None
        assert recording is not None
        recording.forget()
        self._graph.recording = recording


class Generator(OnCard, torch.Generator):
    """A generator that may be the card's; its numbers are a CPU's."""

    def __new__(cls, device: Any = "cpu") -> "Generator":
        self = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        if torch.device(device).type == "cuda":
            address: Any = self
            cls.card.generators[address._cdata] = self
        return self


@contextmanager
def stand_in(card: "Card") -> Iterator[None]:
    """Put a card in the place of torch.cuda's, for threads that begin from now on as well."""
    with ExitStack() as stack:
        for name, fake in _asked(card).items():
            stack.enter_context(instead(torch.cuda, name, fake))
        own = type("Generator", (Generator,), {"card": card})
        stack.enter_context(instead(torch, "Generator", own))
        stack.enter_context(instead(threading.Thread, "run", _entering(card)))
        for place, name, fake in shown_to(card):
            stack.enter_context(instead(place, name, fake))
        yield


@contextmanager
def instead(place: Any, name: str, fake: Any) -> Iterator[None]:
    """Put something else behind a name, and what was there back in the end."""
    was = getattr(place, name)
    setattr(place, name, fake)
    try:
        yield
    finally:
        setattr(place, name, was)


def _asked(card: "Card") -> dict[str, Any]:
    """Return what torch.cuda answers, by name."""
    major, minor = card.capability
    properties = SimpleNamespace(
        name="pretend card",
        major=major,
        minor=minor,
        total_memory=MEMORY,
        multi_processor_count=card.multiprocessors,
    )
    classes = {"Event": Event, "Stream": Stream, "CUDAGraph": CUDAGraph, "graph": Graph}
    own = {name: type(name, (kind,), {"card": card}) for name, kind in classes.items()}
    stream = own["Stream"]()
    return own | {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "is_bf16_supported": lambda including_emulation=True: major >= 8,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: card.capability,
        "get_device_name": lambda device=None: properties.name,
        "mem_get_info": lambda device=None: (MEMORY, MEMORY),
        "empty_cache": lambda: None,
        "synchronize": lambda device=None: card.wait("wait"),
        "current_stream": lambda device=None: stream,
        "stream": lambda stream: nullcontext(),
        "graph_pool_handle": lambda: (0, 1),
    }


def _entering(card: "Card") -> Callable[[threading.Thread], None]:
    run = threading.Thread.run

    def entered(thread: threading.Thread) -> None:
        with card.entered():
            run(thread)

    return entered
