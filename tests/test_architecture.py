"""The arrows of the design and the limits of its house style, read off the source.

Imports run one way: server -> engine -> scheduler -> speculate -> the parts of the paper ->
values; kernels know nothing of ours; the gateway knows neither torch nor specinfer.
"""

import ast
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {
    "specinfer": ROOT / "model_server" / "specinfer",
    "specinfer_kernels": ROOT / "kernels" / "specinfer_kernels",
    "specinfer_gateway": ROOT / "lambda" / "specinfer_gateway",
}
# Each layer may import itself, the ones above it in this list, and packages from elsewhere.
LAYERS = [
    ["errors"],
    ["grammar"],
    ["config", "choices", "token_tree", "text", "sampling", "cost_model"],
    ["transfer", "stopwatch", "tally"],
    ["request"],
    ["warp", "adjust", "logprobs"],
    ["together"],
    ["kv_cache"],
    ["tree_attention"],
    ["attend"],
    ["frame"],
    ["graphs"],
    ["waits"],
    ["llm", "verify"],
    ["lean"],
    ["offload"],
    ["ssm"],
    ["draft"],
    ["speculate"],
    ["scheduler"],
    ["fingerprint", "tokenizer"],
    ["assembly", "intake"],
    ["engine"],
    ["parallel"],
    ["model_store"],
    ["generate", "profile", "server", "plan"],
    ["fleet", "local"],
    ["batch"],
    ["cli"],
]
FREE = {"testing", "train", "bench", "deploy", "metrics"}  # ordered by their own tests
HTTP = {"fastapi", "starlette", "uvicorn", "httpx"}


def modules() -> list[tuple[str, Path]]:
    return [
        (package, path) for package, root in SOURCES.items() for path in sorted(root.rglob("*.py"))
    ]


def imports(path: Path) -> set[str]:
    """Return the dotted names a file imports, those for type checking left out."""
    tree = ast.parse(path.read_text())
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def part(name: str) -> str:
    """Return the layer a dotted specinfer name belongs to."""
    return name.split(".")[1] if "." in name else "__init__"


@pytest.mark.parametrize("path", sorted(SOURCES["specinfer"].rglob("*.py")), ids=str)
def test_arrows_run_one_way(path: Path) -> None:
    own = path.relative_to(SOURCES["specinfer"]).with_suffix("").parts[0]
    if own in FREE | {"__init__"}:
        return
    rank = {name: place for place, layer in enumerate(LAYERS) for name in layer}
    assert own in rank, f"{own} has no place in LAYERS"
    for name in imports(path):
        if name.startswith("specinfer.") and part(name) != own:
            assert part(name) not in FREE, f"{path} imports {name}"
            assert rank[part(name)] < rank[own], f"{path} imports {name}"


def test_draft_and_verify_do_not_know_each_other() -> None:
    for own, other in (("draft", "verify"), ("verify", "draft")):
        for path in (SOURCES["specinfer"] / own).rglob("*.py"):
            assert not any(name.startswith(f"specinfer.{other}") for name in imports(path)), path


def test_http_lives_in_the_server_and_the_laptop_stack() -> None:
    for path in SOURCES["specinfer"].rglob("*.py"):
        own = path.relative_to(SOURCES["specinfer"]).parts[0]
        if {name.split(".")[0] for name in imports(path)} & HTTP:
            assert own in {"server", "fleet", "local", "testing"}, path


def test_kernels_and_gateway_stand_alone() -> None:
    for package, path in modules():
        roots = {name.split(".")[0] for name in imports(path)}
        if package == "specinfer_kernels":
            assert not roots & {"specinfer", "specinfer_gateway", "transformers"}, path
        if package == "specinfer_gateway":
            assert not roots & {"specinfer", "specinfer_kernels", "torch", "transformers"}, path
        if package == "specinfer":
            assert "specinfer_gateway" not in roots, path


def test_source_roots_are_no_packages() -> None:
    for root in ("model_server", "kernels", "lambda"):
        assert not (ROOT / root / "__init__.py").exists()


@pytest.mark.parametrize(("package", "path"), modules(), ids=lambda value: str(value))
def test_files_stay_small_and_say_what_they_are(package: str, path: Path) -> None:
    limit = 350 if package == "specinfer_kernels" else 250
    assert len(path.read_text().splitlines()) <= limit
    if path.stat().st_size:
        assert ast.get_docstring(ast.parse(path.read_text()))


def test_functions_stay_short() -> None:
    for package in SOURCES:
        sizes = sorted(
            size for owner, path in modules() if owner == package for size in _function_sizes(path)
        )
        if sizes:
            assert statistics.median(sizes) <= 8, package
            assert sizes[int(len(sizes) * 0.9)] <= 25, package
            assert sizes[-1] <= 60 or package == "specinfer_kernels", package


def _function_sizes(path: Path) -> list[int]:
    """Return the body lines of each function, docstrings left out."""
    sizes = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            sizes.append(body[-1].end_lineno - body[0].lineno + 1 if body else 0)  # type: ignore[operator]
    return sizes
