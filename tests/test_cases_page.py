"""docs/cases.md names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = [
    line.split("|")[1:-1]
    for line in (ROOT / "docs" / "cases.md").read_text().splitlines()
    if line.startswith("|")
][2:]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].strip()[:40])
def test_a_case_has_its_tests(row: list[str]) -> None:
    names = [name.strip() for name in row[3].split(",")]
    assert names
    for name in names:
        found = re.fullmatch(r"(tests/\S+\.py)::(test_\w+)", name)
        assert found, name
        module = ast.parse((ROOT / found[1]).read_text())
        assert found[2] in {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
