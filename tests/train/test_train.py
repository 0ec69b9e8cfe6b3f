"""Training is repeatable, survives a kill, is the same on two devices, and its pool drafts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specinfer.cli import main
from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.errors import ConfigError
from specinfer.testing.ask import Asker
from specinfer.train.batches import Schedule, targets
from specinfer.train.distil import loss_of
from specinfer.train.prompts import functions_of
from specinfer.train.settings import TrainConfig
from specinfer.train.shards import ANSWER, Corpus, read_shards
from specinfer.train.text import text_corpus

SHORT = ["--laws", "300", "--vocabulary", "40", "--steps", "8,4", "--batch-tokens", "256"]


def arguments(llm: Path, prompts: Path, out: Path, *more: str) -> list[str]:
    named = ["--model", str(llm), "--prompts", str(prompts), "--save-every", "2"]
    return ["train", str(out), *named, *SHORT, *more]


@pytest.fixture(scope="module")
def pool(llm, prompts, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("pool")
    assert main(arguments(llm, prompts, out, "--licence", "CC0-1.0")) == 0
    return out


def weights(out: Path) -> list[bytes]:
    return [(out / f"ssm-{number}" / "ssm.safetensors").read_bytes() for number in (1, 2)]


def test_a_pool_is_made_and_drafts_losslessly(llm, pool) -> None:
    settings = json.loads((pool / "specinfer.json").read_text())
    assert settings["ssms"] == ["ssm-1", "ssm-2"] and settings["licence"] == "CC0-1.0"
    ssms = tuple(pool / name for name in settings["ssms"])
    answers = []
    for drafters in ((), ssms):
        config = EngineConfig(
            model=llm, ssms=drafters, lookup=False, dtype="float32", tree=TreeShape((2, 1))
        )
        engine = Engine.load(config)
        answers.append(Asker(engine)("HELLO", max_new_tokens=20, ignore_eos=True).tokens)
        engine.close()
    assert answers[0] == answers[1]


def test_the_report_says_what_was_measured(pool) -> None:
    report = json.loads((pool / "report.json").read_text())
    assert (pool / "report.png").read_bytes().startswith(b"\x89PNG")
    assert [entry["ssms"] for entry in report["pool_by_size"]] == [1, 2]
    for ssm in report["ssms"]:
        shares = ssm["coverage_top_k"]
        assert shares == sorted(shares) and 0 <= shares[0] <= shares[-1] <= 1
        assert ssm["log"][-1]["step"] in (8, 4)
    assert report["ssms"][0]["dropped"] == 0 <= report["ssms"][1]["dropped"]


def test_training_again_gives_the_same_bytes(llm, prompts, pool, tmp_path) -> None:
    assert main(arguments(llm, prompts, tmp_path, "--data", str(pool / "data"))) == 0
    assert weights(tmp_path) == weights(pool)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(llm, prompts, pool, tmp_path) -> None:
    """SIGKILL as soon as the first checkpoint is there, again at the second SSM's, then finish."""
    command = [sys.executable, "-m", "specinfer.cli", *arguments(llm, prompts, tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for awaited in ("data/laws-00000.safetensors", "work/round-1.safetensors"):
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            while not (tmp_path / awaited).is_file() and process.poll() is None:
                pass
            process.send_signal(signal.SIGKILL)
    assert main(command[3:]) == 0
    assert weights(tmp_path) == weights(pool)


@pytest.mark.slow
def test_two_ranks_train_as_one(llm, prompts, pool, tmp_path) -> None:
    """torchrun with two Gloo processes; float sums differ in their order alone."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    data = ("--data", str(pool / "data"))
    call = [*launch, "-m", "specinfer.cli", *arguments(llm, prompts, tmp_path, *data)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    subprocess.run(call, env=environment, check=True, capture_output=True, timeout=300)
    one, two = (json.loads((out / "report.json").read_text()) for out in (pool, tmp_path))
    for alone, together in zip(one["ssms"], two["ssms"], strict=True):
        for before, after in zip(alone["log"], together["log"], strict=True):
            assert after["loss"] == pytest.approx(before["loss"], rel=2e-2)


def test_a_first_lesson_from_text(llm, prompts, pool, tmp_path) -> None:
    text = tmp_path / "lesson.txt"
    text.write_text("ABCDEFGH" * 200)
    data = ("--data", str(pool / "data"), "--text", str(text), "--text-steps", "3")
    assert main(arguments(llm, prompts, tmp_path / "out", *data)) == 0
    assert weights(tmp_path / "out") != weights(pool)


def test_shards_hold_what_the_llm_said(pool) -> None:
    corpus = read_shards(pool / "data")
    answers = (corpus.kind == ANSWER).nonzero()[:-1, 0]
    inside = answers[torch.isin(answers + 1, answers)]
    assert (corpus.probs[answers].float().sum(1) <= 1.01).all()
    agrees = (corpus.tokens[inside + 1] == corpus.ids[inside, 0]).float().mean()
    assert agrees > 0.5  # three of four answers are greedy


def test_every_sequence_is_in_an_epoch_once() -> None:
    lengths = [5, 9, 30, 2, 17, 17, 8]
    schedule = Schedule(lengths, batch_tokens=32, seed=3)
    epoch = schedule.epoch(0)
    assert sorted(s for batch in epoch for s in batch) == list(range(7))
    assert all(len(b) * max(lengths[s] for s in b) <= 32 for b in epoch)
    assert schedule.sequences(len(epoch)) == schedule.epoch(1)[0]


def a_corpus() -> Corpus:
    return Corpus(
        tokens=torch.tensor([1, 2], dtype=torch.int32),
        offsets=torch.tensor([0, 2]),
        kind=torch.tensor([2, 2], dtype=torch.uint8),
        ids=torch.tensor([[5, 7], [7, 9]], dtype=torch.int32),
        probs=torch.tensor([[0.75, 0.25], [0.5, 0.25]], dtype=torch.float16),
    )


def test_losses_are_what_they_say() -> None:
    """The law outside the draft vocabulary {5, 7} is dropped; tv is 1 - sum min(p, q)."""
    data = targets(a_corpus(), torch.tensor([5, 7]), torch.ones(2))
    batch = data.batch((), torch.arange(2))
    assert batch.probs.tolist() == [[0.75, 0.25], [0.5, 0.0]]
    log_laws = torch.tensor([[0.6, 0.4], [0.3, 0.7]]).log()
    kl = -(0.75 * torch.tensor(0.6).log() + 0.25 * torch.tensor(0.4).log())
    kl = kl - 0.5 * torch.tensor(0.7).log()
    assert float(loss_of(log_laws, batch, "kl")) == pytest.approx(float(kl), rel=1e-6)
    assert float(loss_of(log_laws, batch, "tv")) == pytest.approx(0.15 + 0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [("ssms", 0), ("steps", ()), ("rate", 0.0), ("kept_weight", 1.5), ("hold_out", 1)],
)
def test_wrong_settings_are_named(name, value) -> None:
    with pytest.raises(ConfigError, match=name):
        TrainConfig(**{name: value})


def test_mistakes_are_told_in_a_line(llm, tmp_path, capsys) -> None:
    bad = {"--data": str(tmp_path), "--prompts": str(tmp_path / "none.jsonl"), "--steps": "1,x"}
    for flag, value in bad.items():
        shared = ["train", str(tmp_path / flag), "--model", str(llm), "--laws", "1"]
        assert main([*shared, flag, value]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) <= 3


def test_packages_installed_inside_a_source_folder_are_not_its_own(tmp_path: Path) -> None:
    text = 'def own():\n    """Do what this function is here to do, and no more."""\n'
    for folder in (tmp_path, tmp_path / "site-packages" / "other"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "module.py").write_text(text.replace("own", f"f{len(folder.parts)}") * 20)
    own = len(tmp_path.parts)
    heads = list(functions_of(tmp_path))
    assert len(heads) == 20 and all(f"def f{own}()" in head for head in heads)
    corpus = text_corpus([tmp_path], lambda text: list(text.encode()))
    assert 0 < len(corpus.tokens) <= 20 * len(text)  # the last window may be left out
