"""One planned and applied copy of each root stack, shared by all tests that look at it."""

import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))  # terraform_schema is a tool, not shipped

from terraform_schema.serve import schema_providers  # noqa: E402
from terraform_schema.workspace import Applied, Workspace  # noqa: E402

STACKS = ("small", "medium", "large")
MISSING = (
    "terraform is not on PATH: get 1.11 from https://developer.hashicorp.com/terraform/install "
    "(no provider is downloaded, no account is needed)"
)


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def terraform() -> str:
    """The terraform binary; without one, tests are skipped, but in CI they fail."""
    found = shutil.which("terraform")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    return str(found)


@pytest.fixture(scope="session")
def providers(terraform: str) -> Iterator[dict[str, str]]:
    with schema_providers() as environment:
        yield environment


@pytest.fixture(scope="session")
def new_workspace(
    providers: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Workspace]:
    """Copies a stack, with a stand-in for the Lambda package, and initialises it."""

    def copy(stack: str) -> Workspace:
        folder = tmp_path_factory.mktemp(stack)
        (folder / "build").mkdir()
        with zipfile.ZipFile(folder / "build" / "lambda-arm64.zip", "w") as package:
            package.writestr("handler.py", "")
        workspace = Workspace.copy(REPOSITORY / "terraform", stack, folder, providers)
        workspace.init()
        return workspace

    return copy


@pytest.fixture(scope="session")
def new_root(
    providers: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Workspace]:
    """Copies a small root of tests/terraform/roots beside the modules, and initialises it."""

    def copy(root: str) -> Workspace:
        folder = tmp_path_factory.mktemp(root)
        shutil.copytree(REPOSITORY / "terraform" / "modules", folder / "terraform" / "modules")
        workspace = Workspace.copy(Path(__file__).parent / "roots" / root, ".", folder, providers)
        workspace.init()
        return workspace

    return copy


@pytest.fixture(scope="session")
def applied(new_workspace: Callable[[str], Workspace]) -> Callable[[str], Applied]:
    """Plans and applies a stack once a session."""
    done: dict[str, Applied] = {}

    def apply(stack: str) -> Applied:
        if stack not in done:
            workspace = new_workspace(stack)
            plan = workspace.plan("-var-file=example.tfvars")
            done[stack] = Applied(stack, workspace, plan, workspace.apply_plan())
        return done[stack]

    return apply


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest, applied: Callable[[str], Applied]) -> Applied:
    """Each root stack in turn."""
    return applied(request.param)


@pytest.fixture
def small(applied: Callable[[str], Applied]) -> Applied:
    return applied("small")


@pytest.fixture
def medium(applied: Callable[[str], Applied]) -> Applied:
    return applied("medium")


@pytest.fixture
def large(applied: Callable[[str], Applied]) -> Applied:
    return applied("large")
