"""The README's tables and commands: every named test exists, every item is there."""

import re
from pathlib import Path

import pytest


@pytest.fixture
def readme(repository: Path) -> str:
    return (repository / "terraform" / "README.md").read_text()


def test_every_test_it_names_exists(repository: Path, readme: str) -> None:
    folder = repository / "tests" / "terraform"
    file = ""
    names = re.findall(r"`(test_\w+\.py)?::(test_\w+)`", readme)
    assert len(names) > 30
    for named_file, name in names:
        file = named_file or file
        assert f"def {name}(" in (folder / file).read_text(), f"{file}::{name}"


def test_every_item_of_the_lists_has_a_row(readme: str) -> None:
    numbers = [int(n) for n in re.findall(r"^\| (\d+) \|", readme, re.M)]
    assert numbers == list(range(1, 23))
    security = readme.split("### Security")[1].split("### Monitoring")[0]
    assert len(re.findall(r"^\| [a-zA-Z]", security, re.M)) == 1 + 6


def test_every_module_it_names_exists(repository: Path, readme: str) -> None:
    for name in set(re.findall(r"`modules/(\w+)`", readme)):
        assert (repository / "terraform" / "modules" / name).is_dir(), name


def test_every_variable_in_its_commands_exists(repository: Path, readme: str) -> None:
    for stack, name in re.findall(r"-chdir=terraform/(\w+) \w+ -var (\w+)=", readme):
        variables = (repository / "terraform" / stack / "variables.tf").read_text()
        assert f'variable "{name}"' in variables, f"{stack}: {name}"


def test_the_region_is_a_variable(repository: Path) -> None:
    for stack in ("small", "medium", "large"):
        folder = repository / "terraform" / stack
        assert "region = var.region" in (folder / "versions.tf").read_text()


def test_each_stack_says_what_it_costs_and_how_to_end_it(repository: Path) -> None:
    for stack in ("small", "medium", "large"):
        text = (repository / "terraform" / stack / "README.md").read_text()
        for heading in ("What it costs", "Roll a new model", "Destroy"):
            assert f"## {heading}" in text, f"{stack}: {heading}"
