"""Random decisions: seeded, fair, never the impossible."""

import numpy as np
import pytest
import torch

from specinfer.choices import SeededChoices, inverted
from specinfer.draft.children import draw_children
from specinfer.sampling import SamplingParams
from specinfer.testing.law import exact_law
from specinfer.token_tree import TokenTree


def test_a_seed_repeats_itself() -> None:
    law = torch.full((1000,), 0.001)
    one, two = SeededChoices(5), SeededChoices(5)
    assert [one.draw(law) for _ in range(20)] == [two.draw(law) for _ in range(20)]


def test_the_impossible_is_never_chosen() -> None:
    choices = SeededChoices(0)
    law = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    assert {choices.draw(law) for _ in range(500)} == {1, 3}
    assert not any(choices.accepts(0.0) for _ in range(500))
    assert all(choices.accepts(1.0) for _ in range(500))


@pytest.mark.statistical
def test_draws_follow_the_law() -> None:
    """Chi-square on 20,000 seeded draws; 5 sigma of a Poisson count a bin is below 1e-6."""
    law = torch.tensor([0.05, 0.2, 0.0, 0.45, 0.3])
    choices = SeededChoices(1)
    counts = torch.zeros(5)
    for _ in range(20_000):
        counts[choices.draw(law)] += 1
    expected = 20_000 * law
    assert bool(((counts - expected).abs() <= 5 * expected.sqrt()).all())


@pytest.mark.parametrize("size", [1, 3, 256, 300, 1000])
def test_a_draw_in_two_steps_is_that_of_one_running_sum(size) -> None:
    rng = np.random.default_rng(size)
    law = rng.random(size).astype(np.float32) * (rng.random(size) < 0.3)
    law[rng.integers(size)] += 0.1
    rising = law.astype(np.float64).cumsum()
    middles = (rising + np.append(0.0, rising[:-1])) / 2 / rising[-1]
    for token in np.flatnonzero(law):
        assert inverted(law, middles[token]) == token
    assert law[inverted(law, 0.0)] > 0
    assert law[inverted(law, np.nextafter(1.0, 0.0))] > 0


def test_exact_law_of_a_small_program() -> None:
    def program(choices) -> str:  # type: ignore[no-untyped-def]
        if choices.accepts(0.25):
            return "yes"
        return "ab"[choices.draw(torch.tensor([0.5, 0.5], dtype=torch.float64))]

    assert exact_law(program) == {"a": 0.375, "b": 0.375, "yes": 0.25}


def test_a_rare_token_behind_a_heavy_one_keeps_its_chance() -> None:
    """In float32 the sum of its block is that of the heavy one alone."""
    law = np.zeros(600, dtype=np.float32)
    law[[100, 300]], law[200] = 1.0, 1e-9
    step = 1e-12
    points = 0.5 + step * np.arange(-1500, 1500)
    share = step * sum(inverted(law, point) == 200 for point in points)
    assert share == pytest.approx(0.5e-9, rel=0.01)


def test_weights_need_not_sum_to_one() -> None:
    law = torch.tensor([0.1, 0.4, 0.0, 0.5])
    one, two = SeededChoices(3), SeededChoices(3)
    assert [one.draw(law) for _ in range(50)] == [two.draw(8 * law) for _ in range(50)]


def test_numbers_looked_at_are_those_that_decide() -> None:
    """So that a step on a device, and the walk on the host after it, use the same ones in order."""
    law = torch.full((1000,), 0.001)
    one, two = SeededChoices(7), SeededChoices(7)
    plain = [one.draw(law) for _ in range(12)]
    seen = two.ahead(3)
    assert two.ahead(5)[:3] == seen
    assert inverted(law.numpy(), two.ahead(1)[0]) == two.draw(law) == plain[0]
    two.skip(2)
    assert [two.draw(law) for _ in range(3)] == plain[3:6]  # of which two had been looked at
    two.skip(4)  # of which none had
    assert two.draw(law) == plain[10]


def test_a_node_uses_as_many_numbers_as_it_is_wide() -> None:
    """Though its law has fewer tokens than it was to have children."""
    row = torch.tensor([0.0, 1.0, -torch.inf, -torch.inf])
    params = SamplingParams(temperature=1.0)
    tree, choices = TokenTree.rooted_at(0), SeededChoices(3)
    draw_children(tree, 0, row, 4, params, choices, replacement=False)
    assert sorted(tree.tokens[1:]) == [0, 1]
    assert choices.ahead(1) == SeededChoices(3).ahead(5)[4:]
