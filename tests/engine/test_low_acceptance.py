"""A drafter that is hardly ever right is named in the log, with figures; a good one never."""

import logging

import pytest

from specinfer.config import TreeShape
from specinfer.cost_model import ROWS
from specinfer.draft.low_acceptance import STEPS, LowAcceptance


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_a_drafter_that_is_never_right_is_named_once_enough_is_known(caplog) -> None:
    watch = LowAcceptance()
    for _ in range(STEPS):
        assert not warnings_of(caplog)
        watch.observe([["ssm"], ["ssm"], ["lookup"]], [["lookup"]])
    (told,) = warnings_of(caplog)
    assert told.startswith(f"drafter ssm: 0 of {2 * STEPS} drafted tokens were accepted in {STEPS}")
    assert "check that it was made for this LLM" in told


def test_warnings_come_ever_more_rarely(caplog) -> None:
    watch = LowAcceptance()
    for _ in range(STEPS * 9):
        watch.observe([["ssm"]], [])
    assert len(warnings_of(caplog)) == 4  # the first, second, fourth and eighth time


def test_steps_without_its_drafts_say_nothing_of_a_drafter(caplog) -> None:
    watch = LowAcceptance()
    for _ in range(STEPS):
        watch.observe([], [])
        watch.observe([["ssm"]], [["ssm"]])
    assert not warnings_of(caplog)


def test_the_engine_warns_of_an_ssm_that_knows_nothing(ask, tiny, caplog, monkeypatch) -> None:
    monkeypatch.setattr("specinfer.draft.low_acceptance.STEPS", 30)
    asked = ask(ssms=(tiny["opt"],), tree=TreeShape((1,)), lookup=False)
    asked("abc", max_new_tokens=40, ignore_eos=True)
    assert any(told.startswith("drafter opt: ") for told in warnings_of(caplog))


def test_what_decides_about_drafting_is_logged_at_the_start(ask, caplog) -> None:
    """Why an engine speculates, or does not, could not be found out (vllm#54748)."""
    with caplog.at_level(logging.INFO):
        ask(adaptive=True)
    told = [record.getMessage() for record in caplog.records if "a pass over" in record.msg]
    assert len(told) == 1
    assert told[0].startswith(f"llama: a pass over {list(ROWS)} rows takes ")


def test_steps_without_a_draft_are_counted(ask, tiny) -> None:
    """Steps in which speculation does not pay could not be told from bad ones (vllm#54748)."""
    plain = ask(lookup=False)("abc", max_new_tokens=9, ignore_eos=True).last.stats
    assert plain.plain_steps == plain.steps == 9
    assert plain.accepted_histogram == (9,)
    drafted = ask(ssms=(tiny["ssm"],), tree=TreeShape((1,)), lookup=False)
    stats = drafted("abc", max_new_tokens=9, ignore_eos=True).last.stats
    assert stats.plain_steps <= 1  # the last has no room for a draft
