"""The requests that docs/gateway.md shows are answered, its names are those of the code."""

import re
from pathlib import Path

import pytest

from specinfer_gateway.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "gateway.md").read_text()
EXAMPLES = re.findall(r"```http\nPOST (\S+)\n(.*?)\n```", DOCS, re.DOTALL)


@pytest.mark.parametrize(("path", "body"), EXAMPLES)
def test_an_example_is_answered(caller, path, body):
    event = caller.event("POST", path, body)
    assert caller.send(event).status == 200


def test_every_setting_named_exists():
    known = {f"SPECINFER_{name.upper()}" for name in Settings.__dataclass_fields__}
    container = {"SPECINFER_DEADLINE_S"}
    assert set(re.findall(r"SPECINFER_[A-Z_]+[A-Z]", DOCS)) - known - container == set()


def test_every_setting_that_terraform_gives_exists():
    """Inside Lambda an unknown one would keep the function from starting."""
    text = "".join(path.read_text() for path in (ROOT / "terraform/modules/gateway").glob("*.tf"))
    known = {f"SPECINFER_{name.upper()}" for name in Settings.__dataclass_fields__}
    given = set(re.findall(r"^\s*(SPECINFER_[A-Z_]+) +=", text, re.MULTILINE))
    assert given
    assert given - known == set()


def test_every_metric_named_is_counted():
    source = "".join(path.read_text() for path in (ROOT / "lambda").rglob("*.py"))
    named = DOCS[DOCS.index("`TotalLatency`") : DOCS.index("X-Ray gets")]
    for name in re.findall(r"`(\w+)`", named):
        assert f'"{name}"' in source, name
