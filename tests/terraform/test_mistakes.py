"""What `terraform validate` over the schema provider catches: each mistake is planted and found."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from terraform_schema.workspace import TerraformError, Workspace


@pytest.fixture(scope="module")
def sound(new_root: Callable[[str], Workspace]) -> Workspace:
    return new_root("mistakes")


def problems(workspace: Workspace, text: str) -> Any:
    """Everything that validate says of a text in place of main.tf."""
    (workspace.stack / "main.tf").write_text(text)
    try:
        return json.loads(workspace.run("validate", "-json"))["diagnostics"]
    except TerraformError as error:
        return json.loads(str(error))["diagnostics"]


def source(workspace: Workspace) -> str:
    return (Path(__file__).parent / "roots" / "mistakes" / "main.tf").read_text()


def test_the_sound_file_has_no_complaint(sound: Workspace) -> None:
    assert problems(sound, source(sound)) == []


# What is planted: a pattern, what takes its place, and words of the complaint.
MISTAKES = {
    "misspelt argument": ("memory_size ", "memory_sizes ", 'Did you mean "memory_size"'),
    "wrong type": ("timeout       = 29", 'timeout = "soon"', "a number is required"),
    "missing required argument": (r"  role +=.*\n", "", '"role" is required'),
    "missing required block": (
        r"(?s)  production_variants \{.*?\n  \}\n",
        "",
        "At least 1 .production_variants. blocks",
    ),
    "misspelt block": (r"environment \{", "enviroment {", "enviroment"),
    "block written as argument": (r"ttl \{", "ttl = {", "ttl"),
    "block twice that may be once": (
        r"  ttl \{",
        "  ttl {\n    enabled = false\n  }\n  ttl {",
        "No more than 1",
    ),
    "unknown resource type": (
        r'"aws_dynamodb_table"',
        '"aws_dynamodb_tables"',
        "Invalid resource type",
    ),
    "reference to no attribute": (
        r"this\.name }",
        "this.endpoint_url }",
        "no argument, nested block, or exported attribute",
    ),
    "undeclared variable": (r"var\.role_arn", "var.role", "has not been declared"),
    "misspelt provider argument": (r"  region =", "  regions =", "regions"),
    "computed attribute set": (r"  filename +=", '  arn = "x"\n  filename =', "computed by AWS"),
    "unknown runtime": ("python3.12", "python2.6", "not one of the"),
    "unknown instance type": ("ml.g5.xlarge", "ml.g99.xlarge", "not one of the"),
    "unknown billing mode": ("PAY_PER_REQUEST", "PER_REQUEST", "not one of the"),
    "unknown comparison": ("GreaterThanThreshold", "Above", "not one of the"),
    "time-out out of range": (r"in_seconds = 900", "in_seconds = 30", "range 60 to 3600"),
    "memory out of range": ("memory_size   = 1024", "memory_size = 64", "range 128 to"),
    "alarm over no period": ("evaluation_periods  = 5", "evaluation_periods = 0", "range 1 to"),
    "helm 2's set block": (r"  set     = \[(\{.*\})\]", r"  set {\n name = 1\n }", "set"),
}


@pytest.mark.parametrize("planted", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_planted_mistake_is_caught(sound: Workspace, planted: tuple[str, str, str]) -> None:
    pattern, instead, words = planted
    text, count = re.subn(pattern, instead, source(sound), count=1)
    assert count == 1, "the mistake was not planted"
    found = problems(sound, text)
    said = " ".join(f"{d['summary']} {d['detail']}" for d in found if d["severity"] == "error")
    assert re.search(words, said), said
    assert all(d.get("range") for d in found), "a complaint must name its file and line"


# Those of one line are planted at once: one plan reports each that waits for no other.
IN_VARIABLES = [
    (
        "small",
        {
            "log_retention_days=0": "30, 60 or 90",
            "model_s3_uri=s3://bucket/model": "with the last slash",
            "instance_type=ml.p5.48xlarge": "built for ml.g5 and ml.g6",
            "lambda_package=missing.zip": "which does not exist",
            'server_settings={TYPO="1"}': "must start with SPECINFER_",
        },
    ),
    ("medium", {"parallelism=pipeline": "tensor or copies"}),
    (
        "large",
        {
            "kubernetes_version=1.30": "standard support",
            'public_access_cidrs=["0.0.0.0/0"]': "name the addresses",
        },
    ),
    ("large", {"karpenter_version=1.1.0": "needs 1.13 or newer"}),
    ("large", {"ami_alias=al2023@latest": "pin a release"}),
]


@pytest.mark.parametrize(("stack", "planted"), IN_VARIABLES)
def test_mistakes_in_variables_are_explained(
    request: pytest.FixtureRequest, stack: str, planted: dict[str, str]
) -> None:
    workspace = request.getfixturevalue(stack).workspace
    options = [f"-var={mistake}" for mistake in planted]
    with pytest.raises(TerraformError) as refused:
        workspace.plan("-refresh=false", "-var-file=example.tfvars", *options)
    said = " ".join(str(refused.value).split())
    assert [words for words in planted.values() if words not in said] == []
