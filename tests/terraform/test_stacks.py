"""Every root stack is formatted, valid, plans, applies, and then has nothing left to change."""

import json
from pathlib import Path

import pytest

from terraform_schema.workspace import Applied, Workspace

HOUSE_FILES = {"main.tf", "outputs.tf", "variables.tf", "versions.tf"}


def test_everything_is_formatted(repository: Path, providers: dict[str, str]) -> None:
    Workspace(repository / "terraform", providers).run("fmt", "-check", "-recursive")


def test_it_is_valid_without_a_warning(stack: Applied) -> None:
    verdict = json.loads(stack.workspace.run("validate", "-json"))
    assert verdict["valid"] and verdict["diagnostics"] == []


def test_the_plan_creates_and_nothing_else(stack: Applied) -> None:
    actions = {tuple(c["change"]["actions"]) for c in stack.plan["resource_changes"]}
    assert actions <= {("create",), ("read",)}


def test_after_apply_nothing_is_left_to_change(stack: Applied) -> None:
    plan = stack.workspace.plan("-refresh=false", "-var-file=example.tfvars")
    assert {tuple(c["change"]["actions"]) for c in plan["resource_changes"]} == {("no-op",)}


def test_the_stacks_own_assertions_pass(stack: Applied) -> None:
    assert "Success!" in stack.workspace.run("test", "-no-color", "-var-file=example.tfvars")


def test_each_module_has_the_four_files(repository: Path) -> None:
    for module in (repository / "terraform" / "modules").iterdir():
        assert {f.name for f in module.glob("*.tf")} >= HOUSE_FILES, module.name


@pytest.mark.parametrize("word", ["variable", "output"])
def test_every_variable_and_output_is_described(repository: Path, word: str) -> None:
    for file in (repository / "terraform").rglob(f"{word}s.tf"):
        blocks = file.read_text().split(f'\n{word} "')[
            0 if file.read_text().startswith(word) else 1 :
        ]
        for block in filter(None, blocks):
            needed = ["description ="] + (["type "] if word == "variable" else ["value "])
            assert all(" ".join(n.split()) in " ".join(block.split()) for n in needed), (
                file,
                block,
            )


def test_no_file_is_longer_than_the_house_allows(repository: Path) -> None:
    for file in (repository / "terraform").rglob("*.tf"):
        assert len(file.read_text().splitlines()) <= 250, file
