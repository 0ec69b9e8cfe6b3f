"""Tiny models on disk, engines over them, and a way to ask one question."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.testing.ask import Asker
from specinfer.testing.toy import TINY, write_tiny_model


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
