"""Asking an engine and waiting for the whole answer."""

import queue
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specinfer.engine import Engine, Handle
from specinfer.request import Delta
from specinfer.sampling import SamplingParams

Deltas = queue.SimpleQueue[Delta]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer put together, with the delta that ended it."""

    text: str
    tokens: list[int]
    last: Delta


class Asker:
    """Submits prompts to an engine and gathers their deltas."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self, prompt: Sequence[int] | str, **params: Any) -> Answer:
        """Answer a prompt, text or token ids, with SamplingParams given by name."""
        return self.gather(self.submit(prompt, **params)[1])

    def submit(self, prompt: Sequence[int] | str, **params: Any) -> tuple[Handle, Deltas]:
        ids = self.engine.encode(prompt) if isinstance(prompt, str) else prompt
        deltas: Deltas = queue.SimpleQueue()
        return self.engine.submit(ids, SamplingParams(**params), deltas.put), deltas

    def gather(self, deltas: Deltas, patience: float = 600) -> Answer:
        """Wait for the last delta, at most so many seconds for each."""
        text, tokens = "", list[int]()
        while True:
            delta = deltas.get(timeout=patience)
            text += delta.text
            tokens += delta.tokens
            if delta.finish_reason is not None:
                return Answer(text, tokens, delta)
