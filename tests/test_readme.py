"""Every command and example of the README is run: nothing there may be untrue."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from specinfer.cli import main
from specinfer.testing.toy import write_tiny_model

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = (line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines())
    return [line for line in lines if line]


MADE = [line for line in commands() if line.startswith("make")]
GENERATED = [line for line in commands() if "specinfer generate" in line]
SERVED = [line for line in commands() if "specinfer serve" in line]
BATCHED = [line for line in commands() if "specinfer batch" in line]
FLEETS = [line for line in commands() if "serve run" in line]  # tests/fleet/test_fleet_on_ray.py
TRAINED = [line for line in commands() if re.search("specinfer (train|bench|profile)", line)]
PLANNED = [line for line in commands() if "specinfer plan" in line]


def specinfer(line: str, *more: str, limit: float = 300) -> subprocess.CompletedProcess[str]:
    arguments = shlex.split(line)[1:]
    command = [sys.executable, "-m", "specinfer.cli", *arguments, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=ROOT)


def test_no_command_is_left_out() -> None:
    assert sorted(MADE + GENERATED + SERVED + PLANNED + BATCHED + FLEETS + TRAINED) == sorted(
        commands()
    )


@pytest.mark.parametrize("line", [*MADE, "make run ONCE=1", 'make run PROMPT="x y"'])
def test_make_knows_its_targets(line: str) -> None:
    """CI runs them; here make only says what it would do."""
    done = subprocess.run(
        [*shlex.split(line), "--dry-run"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "specinfer local up" in done.stdout or "pytest" in done.stdout


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target


@pytest.mark.parametrize("line", TRAINED)
def test_training_and_measuring_take_these_options(line: str, capsys) -> None:
    """They are run whole, on tiny models, in tests/train, test_bench_paper and test_profile."""
    with pytest.raises(SystemExit):
        main([shlex.split(line)[1], "--help"])
    known = capsys.readouterr().out
    assert all(flag in known for flag in re.findall(r"--[a-z-]+", line))


@pytest.mark.parametrize("line", GENERATED)
def test_generate_takes_these_options(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: a new one imports torch for seconds, and the slow test below has one."""
    model = write_tiny_model(tmp_path / "tiny", "llama")
    arguments = [*shlex.split(line)[1:], "--model", str(model), "--max-new-tokens", "8"]
    assert main(arguments) == 0
    assert "tokens a step" in capsys.readouterr().err


def test_the_python_example_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("my-llm", "my-ssm"):
        write_tiny_model(tmp_path / name, "llama")
    (example,) = blocks("python")
    script = example + "import time\nwhile engine.running or engine.queued: time.sleep(0.05)\n"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "finish_reason='" in done.stdout


def test_serve_says_in_one_line_that_the_model_is_missing() -> None:
    for line in SERVED:
        done = specinfer(line)
        assert done.returncode == 2
        assert "my-llm" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_generate_answers_with_the_default_model() -> None:
    done = specinfer(GENERATED[0], "--max-new-tokens", "16")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "tokens a step" in done.stderr


@pytest.mark.parametrize("line", PLANNED)
def test_plan_recommends(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    assert main(arguments) == 0
    assert "instance" in capsys.readouterr().out


@pytest.mark.parametrize("line", BATCHED)
def test_batch_answers_a_file(line: str, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny", "llama")
    (tmp_path / "prompts.jsonl").write_text('{"inputs": "abc"}\n')
    for name in ("prompts.jsonl", "answers.jsonl"):
        line = line.replace(name, str(tmp_path / name))
    done = specinfer(line, "--model", str(model))
    assert done.returncode == 0, done.stderr
    assert "generated_text" in (tmp_path / "answers.jsonl").read_text()
