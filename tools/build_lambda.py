"""Builds the gateway's Lambda package: the same bytes from the same sources, for one processor.

    python tools/build_lambda.py             both packages, into build/
    python tools/build_lambda.py --arch arm64 --out gateway.zip

Needs an interpreter of Lambda's version, for the bytecode.  Wheels come from PyPI, made for Lambda's Python and processor, whatever machine builds.
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


def build(arch: str, out: Path, python: str) -> None:
    """Write the package for one processor; raises BuildError."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        _install(arch, python, package)
        for library in package.rglob("*.so*"):
            check_machine(library, arch)
        for name, path in _files(SOURCE):
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, package / name)
        _compile(package, python)
        out.parent.mkdir(parents=True, exist_ok=True)
        _write(out, dict(_files(package, bytecode=True)))
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
        raise BuildError(f"no python{python} was found to compile for it; see --python")
    subprocess.run([interpreter, *COMPILE, "-s", str(folder), "-p", "/", str(folder)], check=True)


def find_python(version: str) -> str | None:
    """Return an interpreter of this version: our own, one on PATH, or one of pyenv's."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = shutil.which(f"python{version}")
    if found:
        return found
    ours = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"))
    return str(ours[-1]) if ours else None


def _files(folder: Path, *, bytecode: bool = False) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        kept = path.name not in DROPPED and path.suffix not in DROPPED_TYPES
        if path.is_file() and kept and (bytecode or "__pycache__" not in path.parts):
            if path.name != "requirements.txt":
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
    chosen = parser.parse_args(arguments)
    if chosen.out and not chosen.arch:
        parser.error("--out needs --arch")
    for arch in [chosen.arch] if chosen.arch else sorted(WHEELS):
        out = chosen.out or ROOT / "build" / f"lambda-{arch}.zip"
        try:
            build(arch, out, chosen.python)
        except BuildError as error:
            print(f"build_lambda: {error}", file=sys.stderr)
            return 2
        print(f"{out}: {out.stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
