"""`specinfer batch IN OUT`: answer every line of a file, and go on where a run was killed."""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from specinfer.batch.shards import Shards
    from specinfer.batch.targets import Answer

HELP = "answer a file of JSON lines, resuming where an earlier run stopped"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", type=Path, help="one request a line, in any dialect")
    parser.add_argument("output", type=Path, help="gets one answer a line, in the same order")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--model", default="default", help="name or folder, run in this process")
    where.add_argument("--url", help="a running server or fleet to ask instead")
    parser.add_argument(
        "--ssm", action="append", default=[], type=Path, help="folder of an SSM; may be repeated"
    )
    parser.add_argument("--shard", type=int, default=64, help="lines that are kept together")
    parser.add_argument("--parallel", type=int, default=4, help="shards asked of --url at once")


def run(args: argparse.Namespace) -> int:
    from specinfer.batch.errors import BatchError
    from specinfer.batch.shards import Shards

    if min(args.shard, args.parallel) < 1:
        raise BatchError("--shard and --parallel must be at least 1")
    shards = Shards.of(args.input, args.output, args.shard, args.url or f"model {args.model}")
    todo = shards.open()
    if todo:
        with _target(args) as answer:
            work(shards, todo, answer, args.parallel if args.url else 1, sys.stderr)
    shards.close()
    return 0


def _target(args: argparse.Namespace) -> "AbstractContextManager[Answer]":
    from specinfer.batch.targets import Remote, local
    from specinfer.model_store import resolve_model

    if args.url:
        return nullcontext(Remote(args.url))
    overrides = {"model": resolve_model(args.model)}
    return local(os.environ, {**overrides, "ssms": tuple(args.ssm)} if args.ssm else overrides)


def work(shards: "Shards", todo: list[int], answer: "Answer", parallel: int, out: TextIO) -> None:
    """Answer the shards, a few at a time; the first failure ends it, what is done stays done."""
    from specinfer.batch.progress import Bar

    def one(shard: int) -> int:
        lines = shards.lines(shard)
        shards.finish(shard, answer(lines))
        return len(lines)

    left = sum(len(shards.lines(shard)) for shard in todo)
    bar = Bar(out, len(shards.rows), len(shards.rows) - left)
    pool = ThreadPoolExecutor(parallel)
    try:
        for done in as_completed([pool.submit(one, shard) for shard in todo]):
            bar.add(done.result())
    finally:
        pool.shutdown(cancel_futures=True)
        bar.close()
