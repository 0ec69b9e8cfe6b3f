"""Run Terraform on a copy of a root stack, so that nothing is left in the source tree."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# No configuration file and no version check: both would look outside.  Terraform ends in seconds,
# so collecting less garbage saves a sixth of its time.
_SETTINGS = {
    "CHECKPOINT_DISABLE": "1",
    "GOGC": "400",
    "TF_CLI_CONFIG_FILE": os.devnull,
    "TF_IN_AUTOMATION": "1",
}
_LOCAL_BACKEND = 'terraform {\n  backend "local" {}\n}\n'


class TerraformError(Exception):
    """Terraform ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of a plan or a state."""

    address: str
    type: str
    values: Mapping[str, Any]

    @property
    def in_module(self) -> str:
        """The address without the type and the name: module.a.module.b."""
        return self.address.partition(f".{self.type}.")[0]


@dataclass(frozen=True, slots=True)
class Workspace:
    """A copy of the terraform folder, and the root stack in it that commands run on."""

    stack: Path
    environment: Mapping[str, str]

    @classmethod
    def copy(
        cls, terraform_folder: Path, stack: str, into: Path, environment: Mapping[str, str]
    ) -> "Workspace":
        """Copy the folder and replace the stack's remote backend by a local one."""
        copied = into / terraform_folder.name
        shutil.copytree(
            terraform_folder, copied, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*")
        )
        folder = copied / stack
        (folder / "backend_override.tf").write_text(_LOCAL_BACKEND)
        return cls(folder, environment)

    def run(self, *arguments: str) -> str:
        """Run a Terraform command; returns its output, raises TerraformError."""
        done = subprocess.run(
            ["terraform", *arguments],
            cwd=self.stack,
            env={**os.environ, **_SETTINGS, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise TerraformError(done.stderr + done.stdout)
        return done.stdout

    def init(self) -> None:
        self.run("init", "-no-color", "-input=false")

    def plan(self, *options: str) -> Any:
        """Plan into the file `plan`; returns the plan as `terraform show -json` has it."""
        self.run("plan", "-no-color", "-input=false", "-out=plan", *options)
        return json.loads(self.run("show", "-json", "plan"))

    def apply_plan(self) -> Any:
        """Apply the file `plan`; returns the state as `terraform show -json` has it."""
        self.run("apply", "-no-color", "-input=false", "plan")
        return json.loads(self.run("show", "-json"))


def resources(state: Any) -> list[Resource]:
    """Every managed resource in a state or in a plan's `planned_values`."""
    values = state.get("planned_values") or state.get("values") or {}
    return list(_walk(values.get("root_module", {})))


def _walk(module: Any) -> Iterator[Resource]:
    for found in module.get("resources", ()):
        if found["mode"] == "managed":
            yield Resource(found["address"], found["type"], found.get("values", {}))
    for child in module.get("child_modules", ()):
        yield from _walk(child)


@dataclass(frozen=True, slots=True)
class Applied:
    """A root stack after a plan and its apply, both as `terraform show -json` has them."""

    name: str
    workspace: Workspace
    plan: Any
    state: Any

    @property
    def resources(self) -> list[Resource]:
        return resources(self.state)

    def of_type(self, type_name: str) -> list[Resource]:
        return [found for found in self.resources if found.type == type_name]

    def one(self, address_part: str) -> Resource:
        """The only resource whose address contains the text."""
        (found,) = (r for r in self.resources if address_part in r.address)
        return found

    def outputs(self) -> dict[str, Any]:
        return {name: out["value"] for name, out in self.state["values"]["outputs"].items()}
