"""The image: what its Dockerfile promises, and its contents proved without docker."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_entry_point_is_in_exec_form_and_takes_serve():
    assert 'ENTRYPOINT ["python", "-m", "specinfer.server"]' in DOCKERFILE
    assert 'CMD ["serve"]' in DOCKERFILE


def test_each_target_is_installed_by_the_script_the_test_below_runs():
    assert set(re.findall(r"RUN docker/install\.sh (\w+)", DOCKERFILE)) == {"cpu", "cuda", "fleet"}


def test_what_the_build_copies_is_what_the_ignore_file_lets_in():
    copied = re.search(r"COPY (.+) \./", DOCKERFILE)[1].split()
    copied += re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE)
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(let_in)
    assert all((ROOT / name).exists() for name in copied)


def test_an_unknown_target_is_refused(tmp_path):
    script = [str(ROOT / "docker" / "install.sh"), "tpu", str(tmp_path)]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "install.sh: no target tpu; cpu, cuda or fleet\n")


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """What the build sees of the checkout."""
    folder = tmp_path_factory.mktemp("src")
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("docker", "model_server", "kernels"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


@pytest.mark.slow
def test_the_contents_serve_the_contract_without_a_network(source, tmp_path):
    from specinfer.testing.toy import write_tiny_model

    prefix = tmp_path / "opt" / "specinfer"
    own = {"TORCH_INDEX": "", "PYTHON": sys.executable}
    install = [str(source / "docker" / "install.sh"), "cpu", str(prefix)]
    subprocess.run(install, cwd=source, env=os.environ | own, check=True)
    packages = {path.name for path in prefix.glob("lib/python*/site-packages/*")}
    assert "specinfer" in packages
    assert not packages & {"moto", "boto3", "pytest", "triton"}
    model = write_tiny_model(tmp_path / "model", "llama")
    check = [sys.executable, str(Path(__file__).with_name("contract_check.py"))]
    isolated = [sys.executable, str(Path(__file__).with_name("isolated.py")), *check]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [*isolated, str(prefix / "bin" / "serve"), str(model)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
