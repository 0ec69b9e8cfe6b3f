"""Expected tokens of a tree against the paper's own tables; the choice of a tree."""

from pathlib import Path

import pytest

from specinfer.plan.errors import PlanError
from specinfer.plan.speculation import (
    best_tree,
    candidates,
    nodes,
    read_profile,
    stands,
    tokens_a_step,
)

# Averages over the paper's five datasets, greedy decoding, 1 to 5 children.
TABLE_1 = [0.664, 0.768, 0.810, 0.842, 0.856]
TABLE_2 = [2.542, 3.040, 3.224, 3.358, 3.462]  # tokens a step of <1,1,k,1,1,1,1,1>


@pytest.mark.parametrize(("width", "found"), list(enumerate(TABLE_1, start=1)))
def test_children_stand_as_often_as_in_the_papers_table_1(width: int, found: float) -> None:
    assert abs(stands(TABLE_1[0], width) - found) < 0.012


@pytest.mark.parametrize(("width", "found"), list(enumerate(TABLE_2, start=1)))
def test_tokens_a_step_are_near_the_papers_table_2(width: int, found: float) -> None:
    tree = (1, 1, width, 1, 1, 1, 1, 1)
    assert abs(tokens_a_step(tree, TABLE_1[0]) / found - 1) < 0.15


def test_no_tree_gives_the_llms_own_token() -> None:
    assert tokens_a_step((), 0.6) == 1
    assert tokens_a_step((1, 1), 0.5) == 1.75
    assert nodes(()) == 0 and nodes((2, 1)) == 4


def test_every_candidate_is_there_once() -> None:
    found = list(candidates())
    assert len(set(found)) == len(found) and () in found and (1, 1, 3, 1, 1, 1, 1, 1) in found


def test_free_rows_are_used_and_dear_ones_are_not() -> None:
    wide, _ = best_tree(0.6, lambda widths: 1.0)
    assert len(wide) == 8 and max(wide) == 5
    assert best_tree(0.6, lambda widths: 1.0 + nodes(widths)) == ((), 1.0)


def test_a_saved_metrics_page_tells_the_rate(tmp_path: Path) -> None:
    page = tmp_path / "metrics.txt"
    tokens = tokens_a_step((1,) * 8, 0.7)
    page.write_text(
        f"specinfer_verify_steps_total 100.0\nspecinfer_accepted_tokens_total {100 * (tokens - 1)}"
        "\n"
    )
    assert read_profile(page).rate == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("specinfer_verify_steps_total 0.0\nspecinfer_accepted_tokens_total 0.0\n", "nothing yet"),
        ("<html>", "save a server's /metrics page"),
    ],
)
def test_a_page_without_figures_is_refused(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "page").write_text(text)
    with pytest.raises(PlanError, match=told):
        read_profile(tmp_path / "page")


def test_a_missing_page_is_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        read_profile(tmp_path / "page")
