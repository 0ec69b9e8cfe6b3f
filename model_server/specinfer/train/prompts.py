"""What the LLM is asked: turns that it goes on with itself, functions to complete, or a file's.

No data set is needed.  The LLM writes its own questions behind the first words of a turn, and
Python sources give signatures with docstrings; a benchmark's prompts must stay out of training.
"""

import ast
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from specinfer.train.errors import TrainError
from specinfer.train.text import is_own

DOCSTRING = range(30, 421)  # characters
SIGNATURE = 160  # characters at most
FUNCTIONS = 0.42  # share of prompts that are functions, where there are sources
CODE = 0.15  # ... that the LLM writes itself behind the openings for code
FORMS = ("{}",) * 6 + (
    "Complete this function:\n\n{}",
    "Complete the following Python function:\n\n{}",
    "Implement this function.\n\n{}",
    "Write the body of this function:\n\n```python\n{}```",
)
MARK = "\u241f"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user's turn, or the first words of one that the LLM is to finish."""

    text: str
    finished: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """The chat template's tokens around a user's turn, up to where the assistant speaks."""

    before: list[int]
    after: list[int]
    ends: frozenset[int]
    encode: Any  # str -> list[int]

    @classmethod
    def of(cls, folder: Path, ends: frozenset[int]) -> "Frame":
        """Read a model folder's template; raises TrainError where there is none."""
        inner: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not inner.chat_template:
            raise TrainError(f"{folder}: no chat template, so the LLM cannot prompt itself")
        messages = [{"role": "user", "content": MARK}]
        text = inner.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        before, _, after = text.partition(MARK)

        def encode(text: str) -> list[int]:
            ids: list[int] = inner.encode(text, add_special_tokens=False)
            return ids

        return cls(encode(before), encode(after), ends, encode)


def openings(name: str) -> list[str]:
    """Return the first words of turns shipped under a name, `chat` or `code`."""
    document = json.loads((Path(__file__).parent / "openings.json").read_text())
    found: list[str] = document[name]
    return found


def stream(seed: int, sources: Sequence[Path] = (), given: Sequence[str] = ()) -> Iterator[Prompt]:
    """Yield prompts without end: the given ones alone, if any, else functions and openings."""
    choose = random.Random(seed)
    if given:
        while True:
            yield Prompt(choose.choice(given), finished=True)
    functions = sorted({text for source in sources for text in functions_of(source)})
    choose.shuffle(functions)
    chat, code = openings("chat"), openings("code")
    while True:
        share = choose.random()
        if share < FUNCTIONS and functions:
            yield Prompt(choose.choice(FORMS).format(functions.pop()), finished=True)
        elif share < FUNCTIONS + CODE:
            yield Prompt(choose.choice(code), finished=False)
        else:
            yield Prompt(choose.choice(chat), finished=False)


def functions_of(folder: Path) -> Iterator[str]:
    """Yield the documented functions of a folder's Python files, bodies left out."""
    for path in sorted(file for file in folder.rglob("*.py") if is_own(file, folder)):
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, ValueError, OSError):
            continue  # test data and other languages' templates
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield from _head(node)


def _head(node: ast.FunctionDef) -> Iterator[str]:
    text = ast.get_docstring(node) or ""
    node.body, node.decorator_list = [ast.Pass()], []
    signature = ast.unparse(node).partition("\n")[0]
    if len(text) in DOCSTRING and text.isascii() and len(signature) <= SIGNATURE:
        indented = text.replace("\n", "\n    ")
        yield f'{signature}\n    """{indented}\n    """\n'


def read_prompts(path: Path) -> list[str]:
    """Read prompts from JSON lines with `prompt` (or plain text a line); raises TrainError."""
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        if path.suffix == ".jsonl":
            return [str(json.loads(line)["prompt"]) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainError(f"{path}: no prompts: {error!r}") from error
    return lines
