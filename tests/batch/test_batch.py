"""Offline batches: order, resumption after a kill, refusals; scripted answers, a tiny model."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from specinfer.batch.command import work
from specinfer.batch.errors import BatchError
from specinfer.batch.progress import Bar
from specinfer.batch.shards import Shards
from specinfer.cli import main
from specinfer.testing.toy import write_tiny_model


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\n".join(b"row %d" % number for number in range(10)) + b"\n\n")
    return path


class Echo:
    """Answers each row with itself; dies when a row comes that it was told to die at."""

    def __init__(self, die_at: bytes = b"") -> None:
        self.die_at = die_at
        self.seen: list[bytes] = []

    def __call__(self, rows: Sequence[bytes]) -> bytes:
        if self.die_at in rows:
            raise KeyboardInterrupt
        self.seen += rows
        return b"".join(b"<%s>\n" % row for row in rows)


def shards_of(source: Path, size: int = 4, label: str = "model x") -> Shards:
    return Shards.of(source, source.with_name("out.jsonl"), size, label)


def test_answers_are_in_order(source: Path) -> None:
    shards = shards_of(source)
    work(shards, shards.open(), Echo(), 3, io.StringIO())
    shards.close()
    answers = source.with_name("out.jsonl").read_bytes().splitlines()
    assert answers == [b"<row %d>" % number for number in range(10)]
    assert not shards.folder.exists()


def test_rows_that_are_done_are_not_done_again(source: Path) -> None:
    first, second = shards_of(source), shards_of(source)
    killed, echo = Echo(die_at=b"row 5"), Echo()
    with pytest.raises(KeyboardInterrupt):
        work(first, first.open(), killed, 1, io.StringIO())
    todo = second.open()
    (second.folder / "000001.part").write_bytes(b"half a shard")  # of a write that was cut
    work(second, todo, echo, 1, io.StringIO())
    second.close()
    assert not set(killed.seen) & set(echo.seen)
    assert sorted(killed.seen + echo.seen) == sorted(shards_of_rows(source))
    assert source.with_name("out.jsonl").read_bytes().count(b"\n") == 10


def shards_of_rows(source: Path) -> list[bytes]:
    return [line for line in source.read_bytes().splitlines() if line]


def test_parts_of_another_batch_are_not_mixed_in(source: Path) -> None:
    shards_of(source).open()
    for other in (shards_of(source, size=5), shards_of(source, label="model y")):
        with pytest.raises(BatchError, match="parts of another input, model or shard size"):
            other.open()
    source.write_bytes(b"other rows")
    with pytest.raises(BatchError, match="parts of another input"):
        shards_of(source).open()


def test_what_cannot_be_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(BatchError, match="No such file"):
        shards_of(tmp_path / "none.jsonl")
    (tmp_path / "empty").write_bytes(b"\n\n")
    with pytest.raises(BatchError, match="has no lines"):
        shards_of(tmp_path / "empty")
    source.with_name("out.jsonl").write_bytes(b"")
    with pytest.raises(BatchError, match="exists already"):
        shards_of(source)


def test_a_shard_with_a_missing_answer_is_not_kept(source: Path) -> None:
    shards = shards_of(source)
    with pytest.raises(BatchError, match="3 answers to the 4 lines of shard 0"):
        work(shards, shards.open(), lambda rows: b"x\n" * 3, 1, io.StringIO())
    assert shards.open() == [0, 1, 2]


def test_the_bar_tells_speed_and_time_left() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out, times = Terminal(), iter([0.0, 0.0, 2.0])
    bar = Bar(out, total=10, before=4, clock=lambda: next(times))
    bar.add(3)
    bar.close()
    last = out.getvalue().split("\r")[-1]
    assert "7/10 rows, 1.5 rows/s, 2 s left" in last and last.startswith("[" + "#" * 21 + "-")


def test_a_tiny_model_answers_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_tiny_model(tmp_path / "tiny", "llama")
    rows = [{"prompt": "abc", "max_tokens": 4}, {"inputs": "abc"}, {"nothing": 1}]
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(["batch", str(source), str(output), "--model", str(model), "--shard", "2"]) == 0
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert answers[0]["usage"] and answers[1][0]["generated_text"] is not None
    assert answers[2]["error"]["code"] == "unknown_dialect"
    assert "3/3 rows" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(source.with_name("out.jsonl"))
    assert main(["batch", str(source), output, "--url", "http://127.0.0.1:9"]) == 2
    assert "run the same command to go on" in capsys.readouterr().err
