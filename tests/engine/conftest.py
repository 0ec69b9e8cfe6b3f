"""Tiny models on disk, engines over them, and a way to ask one question."""

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.request import Delta, SamplingParams
from specinfer.testing.toy import TINY, write_tiny_model


@dataclass(frozen=True)
class Answer:
    text: str
    tokens: list[int]
    last: Delta


class Asker:
    """Submits a prompt and gathers its deltas."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self, prompt: Sequence[int] | str, **params: object) -> Answer:
        return self.gather(*self.submit(prompt, **params)[1:])

    def submit(self, prompt: Sequence[int] | str, **params: object):  # type: ignore[no-untyped-def]
        ids = self.engine.encode(prompt) if isinstance(prompt, str) else prompt
        deltas: queue.SimpleQueue[Delta] = queue.SimpleQueue()
        handle = self.engine.submit(ids, SamplingParams(**params), deltas.put)  # type: ignore[arg-type]
        return handle, deltas

    def gather(self, deltas: "queue.SimpleQueue[Delta]") -> Answer:
        text, tokens = "", []
        while True:
            delta = deltas.get(timeout=60)
            text += delta.text
            tokens += delta.tokens
            if delta.finish_reason is not None:
                return Answer(text, tokens, delta)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder of random weights an architecture, and a second llama to draft with."""
    base = tmp_path_factory.mktemp("tiny")
    folders = {kind: write_tiny_model(base / kind, kind) for kind in TINY}
    folders["ssm"] = write_tiny_model(base / "ssm", "llama", seed=1)
    return folders


@pytest.fixture
def ask(tiny: dict[str, Path]) -> Iterator[Callable[..., Asker]]:
    """Build engines over the tiny models; all are closed, and must have given every page back."""
    engines: list[Engine] = []

    def build(kind: str = "llama", **settings: object) -> Asker:
        # Fixed trees unless asked for: what pays on a toy model depends on the machine.
        chosen = {"dtype": "float32", "adaptive": False, **settings}
        config = EngineConfig(model=tiny[kind], **chosen)  # type: ignore[arg-type]
        engines.append(Engine.load(config))
        return Asker(engines[-1])

    yield build
    for engine in engines:
        engine.close()
        assert engine.cache.used == 0, "pages leaked"
