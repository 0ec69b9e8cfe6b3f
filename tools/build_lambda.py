"""Builds the gateway's Lambda package: the same bytes from the same sources, for one processor.

    python tools/build_lambda.py             both packages, into build/
    python tools/build_lambda.py --arch arm64 --out gateway.zip

Needs an interpreter of Lambda's Python, for the bytecode.  Wheels come from PyPI, made for that
Python and the processor, whatever machine builds.
https://docs.aws.amazon.com/lambda/latest/dg/python-package.html
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "lambda"
WHEELS = {"arm64": "aarch64", "x86_64": "x86_64"}  # Lambda's names -> the wheels'
ELF_MACHINES = {"arm64": 183, "x86_64": 62}  # e_machine
LIMIT_BYTES = 6 * 1024 * 1024  # a larger package starts late
MOMENT = (1980, 1, 1, 0, 0, 0)  # the oldest time that a zip can tell
# Written by pip, different from one installation to the next, read by nobody at run time.
DROPPED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
# A page of powertools that the gateway does not serve; 1.7 MB before compression.
DROPPED_TYPES = {".js", ".css"}
COMPILE = ["-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash"]


class BuildError(Exception):
    """A package that must not be shipped."""


def build(arch: str, out: Path, python: str, *, bytecode: bool = True) -> None:
    """Write the package for one processor; raises BuildError."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        _install(arch, python, package)
        for library in package.rglob("*.so*"):
            check_machine(library, arch)
        unwanted = shutil.ignore_patterns("__pycache__", "requirements.txt")
        shutil.copytree(SOURCE, package, ignore=unwanted, dirs_exist_ok=True)
        if bytecode:
            _compile(package, python)
        out.parent.mkdir(parents=True, exist_ok=True)
        _write(out, dict(_files(package)))
    size = out.stat().st_size
    if size > LIMIT_BYTES:
        raise BuildError(f"{out} has {size} bytes; the limit is {LIMIT_BYTES}")


def check_machine(library: Path, arch: str) -> None:
    """Refuse a library made for another processor: e_machine is at byte 18 of an ELF file."""
    head = library.read_bytes()[:20]
    machine = int.from_bytes(head[18:20], "little")
    if head[:4] != b"\x7fELF" or machine != ELF_MACHINES[arch]:
        raise BuildError(f"{library.name} is for machine {machine}, not for {arch}")


def _install(arch: str, python: str, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp"]
    command += [f"--platform=manylinux2014_{WHEELS[arch]}", f"--python-version={python}"]
    command += [f"--target={target}", f"--requirement={SOURCE / 'requirements.txt'}"]
    if subprocess.run(command, check=False).returncode:
        raise BuildError(f"the wheels for {arch} and Python {python} could not be installed")


def _compile(folder: Path, python: str) -> None:
    """Add bytecode: Lambda's folder is read-only, so every cold start would compile it anew.

    Measured: 1.2 s of import without, 0.7 s with it.
    """
    interpreter = find_python(python)
    if interpreter is None:
        raise BuildError(f"no python{python} was found to compile with; --source-only does without")
    subprocess.run([interpreter, *COMPILE, "-s", str(folder), "-p", "/", str(folder)], check=True)


def find_python(version: str) -> str | None:
    """Return an interpreter of this version: our own, one on PATH, or one of pyenv's."""
    pyenv = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}")
    on_path = shutil.which(f"python{version}")
    candidates = [sys.executable, *([on_path] if on_path else []), *map(str, sorted(pyenv))]
    # pyenv puts a program on PATH for every version it has, most of which only complain.
    return next((path for path in candidates if _version(path) == version), None)


def _version(interpreter: str) -> str:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    asked = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield what belongs into a package, with its name there."""
    for path in folder.rglob("*"):
        dropped = path.name in DROPPED or path.suffix in DROPPED_TYPES
        if path.is_file() and not dropped:
            yield path.relative_to(folder).as_posix(), path


def _write(out: Path, files: dict[str, Path]) -> None:
    """Write a zip whose bytes depend on names and contents only."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as package:
        for name in sorted(files):
            data = files[name].read_bytes()
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, where the mode bits mean something
            entry.external_attr = (0o755 if data.startswith(b"#!") else 0o644) << 16
            package.writestr(entry, data)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description="Build the gateway's Lambda packages.")
    parser.add_argument("--arch", choices=sorted(WHEELS), help="one processor (default: both)")
    parser.add_argument("--out", type=Path, help="the file, with --arch")
    parser.add_argument("--python", default="3.12", help="Lambda's Python (%(default)s)")
    parser.add_argument("--source-only", action="store_true", help="add no bytecode")
    chosen = parser.parse_args(arguments)
    if chosen.out and not chosen.arch:
        parser.error("--out needs --arch")
    for arch in [chosen.arch] if chosen.arch else sorted(WHEELS):
        out = chosen.out or ROOT / "build" / f"lambda-{arch}.zip"
        try:
            build(arch, out, chosen.python, bytecode=not chosen.source_only)
        except BuildError as error:
            print(f"build_lambda: {error}", file=sys.stderr)
            return 2
        print(f"{out}: {out.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
