"""The process that takes requests, with a program in place of the ranks."""

import queue
import sys
from collections.abc import Iterator

import pytest

from specinfer.config import EngineConfig
from specinfer.errors import ConfigError, ContextLengthError, ParameterError, QueueFullError
from specinfer.parallel.launch import RanksLostError
from specinfer.parallel.remote import Limits, RemoteEngine
from specinfer.sampling import SamplingParams

# What a rank 0 says and does, given its connection and the first message.
OPENING = """
import os, sys, time
from multiprocessing.connection import Client
from specinfer.parallel.messages import *
from specinfer.request import Delta
from specinfer.tally import Tally
rank = Client(sys.argv[1], "AF_UNIX")
start = rank.recv()
def ready():
    rank.send(Ready("toy", "r1", vocab=97, max_context=50, pages=8))
def say(number, text, reason=None):
    stats = Tally().stats() if reason else None
    rank.send(Answer(number, Delta(text, (), reason, stats, prompt_tokens=1)))
"""
PARROT = """
ready()
rank.send(Beat(running=1, pages_used=3))
while not isinstance(message := rank.recv(), Close):
    if isinstance(message, Cancel):
        say(message.number, "", "cancelled")
    else:
        say(message.number, "+".join(map(str, message.prompt)))
"""


@pytest.fixture
def start(tiny) -> "Iterator[object]":
    engines: list[RemoteEngine] = []

    def build(program: str, opening: str = OPENING, silence_s: float = 30.0, **settings: object):
        def command(address: str) -> list[str]:
            return [sys.executable, "-c", opening + program, address]

        config = EngineConfig(model=tiny["llama"], tensor_parallel=2, device="cpu", **settings)
        engine = RemoteEngine.load(config, command, Limits(silence_s=silence_s))
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        engine.close()


def submit(engine, prompt=(1, 2)):
    deltas: queue.SimpleQueue = queue.SimpleQueue()
    return engine.submit(prompt, SamplingParams(), deltas.put), deltas


def test_pieces_come_back_under_their_own_request(start):
    engine = start(PARROT)
    assert (engine.model_id, engine.revision, engine.max_context) == ("toy", "r1", 50)
    first, second = submit(engine, (1, 2)), submit(engine, (3, 4))
    assert first[1].get(timeout=10).text == "1+2"
    assert second[1].get(timeout=10).text == "3+4"
    assert (engine.running, engine.queued, engine.cache.used) == (1, 1, 3)
    first[0].cancel()
    assert first[1].get(timeout=10).finish_reason == "cancelled"
    assert engine.queued == 0


def test_what_no_rank_should_see_is_refused_here(start):
    engine = start(PARROT, max_batch=1, queue_limit=1)
    with pytest.raises(ParameterError, match="outside the vocabulary"):
        submit(engine, (97,))
    with pytest.raises(ContextLengthError):
        submit(engine, range(50))
    submit(engine)
    submit(engine)
    with pytest.raises(QueueFullError, match="1 requests are already waiting"):
        submit(engine)


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 9)", "rank.close()"])
def test_a_dead_rank_loses_every_open_request_and_a_later_one(start, end):
    engine = start(f"ready(); rank.recv(); rank.recv(); {end}")
    for _, deltas in [submit(engine), submit(engine)]:
        delta = deltas.get(timeout=10)
        assert delta.finish_reason == "lost"
        assert "ask again" in delta.error
    engine._reader.join(10)
    assert not engine.alive
    assert submit(engine)[1].get(timeout=10).finish_reason == "lost"


def test_a_silent_rank_is_ended(start):
    engine = start("ready(); rank.recv(); time.sleep(60)", silence_s=0.5)
    assert submit(engine)[1].get(timeout=10).finish_reason == "lost"
    engine._reader.join(10)
    assert engine._process.returncode == -9


def test_closing_asks_first(start, tmp_path):
    told = tmp_path / "told"
    engine = start(f"ready(); open({str(told)!r}, 'w').write(type(rank.recv()).__name__)")
    engine.close()
    assert told.read_text() == "Close"
    assert not engine.alive


@pytest.mark.parametrize(
    ("program", "opening", "error", "said"),
    [
        ("rank.send(Refused('no room'))", OPENING, ConfigError, "no room"),
        ("sys.exit(3)", OPENING, RanksLostError, "while they loaded"),
        ("", "import sys; sys.exit(3)", RanksLostError, "status 3"),
    ],
)
def test_ranks_that_do_not_come_up_say_why(start, program, opening, error, said):
    with pytest.raises(error, match=said):
        start(program, opening)
