"""A tiny LLM, and a corpus of what it says."""

from pathlib import Path

import pytest

from specinfer.testing.toy import write_tiny_model


@pytest.fixture(scope="session")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("llm") / "llama", "llama", vocab=64)


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [f'{{"prompt": "{text}"}}' for text in ("ABC ABC", "HELLO", "0123456789", "TREE")]
    path.write_text("\n".join(lines))
    return path
