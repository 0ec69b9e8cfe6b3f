"""Parts of a long measurement kept on disk: a run that was killed goes on where it was."""

import json
from collections.abc import Callable
from pathlib import Path


class Kept:
    """Lists of figures by what they are figures of, in one file of JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, list[float]] = {}
        if path.is_file():
            self._parts = json.loads(path.read_text())

    def get(self, key: str, measure: Callable[[], list[float]]) -> list[float]:
        """Return the figures of a key, measured now unless an earlier run did."""
        if key not in self._parts:
            self._parts[key] = measure()
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self._parts))
            new.replace(self._path)
        return self._parts[key]

    def drop(self) -> None:
        """Delete the file: the measurement is whole."""
        self._path.unlink(missing_ok=True)
