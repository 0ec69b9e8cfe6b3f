"""`specinfer bench paper` on a tiny pair: whole tables, and mistakes told in a line."""

import gzip
import json
from pathlib import Path

import pytest

from specinfer.bench.errors import BenchError
from specinfer.bench.kept import Kept
from specinfer.bench.prompt_sets import prompt_set
from specinfer.cli import main
from specinfer.errors import ModelFolderError
from specinfer.ssm import pool_members
from specinfer.testing.toy import write_tiny_model


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an LLM and a pool of it and a stranger."""
    base = tmp_path_factory.mktemp("pair")
    write_tiny_model(base / "llm", "llama")
    write_tiny_model(base / "pool" / "same", "llama")
    write_tiny_model(base / "pool" / "other", "llama", seed=1)
    settings = {"format": 1, "role": "pool", "ssms": ["same", "other"]}
    (base / "pool" / "specinfer.json").write_text(json.dumps(settings))
    (base / "small.jsonl").write_text('{"prompt": "HELLO"}\n{"turns": ["ABC", "more"]}\n')
    return base


def test_every_table_of_the_paper(pair: Path) -> None:
    out = pair / "figures" / "tiny"
    named = ["--model", str(pair / "llm"), "--ssm", str(pair / "pool")]
    small = ["--prompts", str(pair / "small.jsonl"), "--tokens", "10", "--seeds", "1"]
    command = ["bench", "paper", *named, *small, "--out", str(out), "--dtype", "float32"]
    assert main(command) == 0
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    tables = json.loads(out.with_suffix(".json").read_text())["sets"]["small"]
    for mode in ("greedy", "stochastic"):
        shares = tables["table_1"][mode]
        assert len(shares) == 5 and all(0.6 < share <= 1 for share in shares), mode
        assert all(steps > 3 for steps in tables["table_2"][mode])  # the SSM is the LLM
        assert len(tables["raw"][mode]["5"]) == 2
    assert set(tables["table_3"]) == {"naive", "multi_step", "multi_step_wor", "traversal"}
    pool = tables["pool"]
    assert pool["expansion of same"] > pool["expansion of other"] >= 1
    assert pool["merge of the pool"] >= pool["expansion of other"]


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    kept, calls = Kept(tmp_path / "parts.json"), []

    def measure(value: float) -> list[float]:
        calls.append(value)
        return [value]

    assert kept.get("a", lambda: measure(1.5)) == [1.5]
    again = Kept(tmp_path / "parts.json")
    assert again.get("a", lambda: measure(9.0)) == [1.5] and calls == [1.5]
    assert again.get("b", lambda: measure(2.0)) == [2.0]
    again.drop()
    assert not list(tmp_path.iterdir())


def test_what_drafting_gives_and_takes(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three prompts are three parts of one; the SSM is the LLM, so its fixed trees stand whole."""
    prompts, out = pair / "three.jsonl", pair / "figures" / "drafting"
    prompts.write_text("".join(f'{{"prompt": "{word}"}}\n' for word in ("HELLO", "ABC", "XYZ")))
    named = ["--model", str(pair / "llm"), "--ssm", str(pair / "pool"), "--dtype", "float32"]
    small = ["--prompts", str(prompts), "--tokens", "18", "--out", str(out)]
    assert main(["bench", "drafting", *named, *small]) == 0
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    assert len(rows) == 5 * 3
    plain, pool = ([row for row in rows if row["way"] == way] for way in ("plain", "pool, fixed"))
    assert {row["tokens_per_step"] for row in plain} == {1.0}
    assert all(row["tokens_per_step"] > 5 and 0 < row["drafting"] < 1 for row in pool)
    assert all(row["nodes"] <= 32 for row in rows)
    assert "three, pool, fixed: " in capsys.readouterr().out


def test_prompt_sets(tmp_path: Path) -> None:
    packed = tmp_path / "Set.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"prompt": "a"}\n{"prompt": "b"}\n'))
    assert prompt_set(str(packed), 1) == ("set", ["a"])
    for content in (b"", b"no json\n", b"[1]\n", b'{"text": "a"}\n'):
        (tmp_path / "bad.jsonl").write_bytes(content)
        with pytest.raises(BenchError, match=r"bad\.jsonl: no prompts"):
            prompt_set(str(tmp_path / "bad.jsonl"), 1)


def test_a_pool_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    assert pool_members(tmp_path) == (tmp_path,)
    for ssms, words in (([], "names its folders"), (["ssm-1"], "no SSM in")):
        (tmp_path / "specinfer.json").write_text(json.dumps({"role": "pool", "ssms": ssms}))
        with pytest.raises(ModelFolderError, match=words):
            pool_members(tmp_path)
