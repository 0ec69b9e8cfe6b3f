"""Penalties, biases and bans, each node with its own path as history; log-probabilities."""

import pytest
import torch

from specinfer.adjust import adjust
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.testing.toy import a_request

ROWS = torch.tensor([[1.0, -1.0, 2.0, 0.5], [1.0, -1.0, 2.0, 0.5]])


def asked(tokens: list[int], answer: list[int], **params: object) -> Request:
    request = a_request(tokens)
    request.tokens += answer
    request.params = SamplingParams(**params)  # type: ignore[arg-type]
    return request


def test_nothing_asked_changes_nothing() -> None:
    assert adjust(ROWS, asked([0], [1]), [[], [2]]) is ROWS


def test_repetition_looks_at_prompt_answer_and_path() -> None:
    rows = adjust(ROWS, asked([0], [1], repetition_penalty=2.0), [[], [2]])
    assert rows.tolist() == [[0.5, -2.0, 2.0, 0.5], [0.5, -2.0, 1.0, 0.5]]


def test_frequency_and_presence_look_at_the_answer_and_the_path_only() -> None:
    request = asked([0], [1, 1], frequency_penalty=0.5, presence_penalty=1.0)
    rows = adjust(ROWS, request, [[], [1, 2]])
    assert rows.tolist() == [[1.0, -3.0, 2.0, 0.5], [1.0, -3.5, 0.5, 0.5]]


def test_biases_are_added_everywhere() -> None:
    rows = adjust(ROWS, asked([0], [], logit_bias={3: 100.0, 0: -1.5}), [[], [1]])
    assert rows[:, 3].tolist() == [100.5, 100.5]
    assert rows[:, 0].tolist() == [-0.5, -0.5]


def test_an_answer_cannot_end_before_its_minimum() -> None:
    request = asked([0], [1], min_new_tokens=3, stop_token_ids=(2,))
    rows = adjust(ROWS, request, [[], [1, 1]])
    assert rows[0, 2] == -torch.inf
    assert rows[1, 2] == 2.0


def test_the_rows_given_are_left_as_they_are() -> None:
    before = ROWS.clone()
    adjust(ROWS, asked([0], [1], repetition_penalty=2.0, logit_bias={1: 1.0}), [[], [1]])
    assert torch.equal(ROWS, before)


CONTROLS = [
    {"repetition_penalty": 1.5},
    {"frequency_penalty": 1.0, "presence_penalty": 0.5},
    {"logit_bias": {5: 3.0, 6: -100.0}},
    {"min_new_tokens": 20, "ignore_eos": False},
]


@pytest.mark.parametrize("controls", CONTROLS, ids=lambda c: "+".join(c))
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_controls_act_on_trees_as_on_plain_decoding(ask, controls, temperature) -> None:
    """Look-up drafts leave a seeded answer alone, so any slip in a node's history shows."""
    params = {"max_new_tokens": 30, "temperature": temperature, "seed": 4, "ignore_eos": True}
    prompt = "abcabcabcabcabc"
    plain = ask(lookup=False)(prompt, **(params | controls))
    tree = ask()(prompt, **(params | controls))
    assert tree.tokens == plain.tokens
    assert tree.last.stats.drafted > 0


def test_an_ssms_draws_are_adjusted_as_well(ask, tiny) -> None:
    """The LLM drafting for itself must be accepted in full under penalties too."""
    asked_engine = ask(ssms=(tiny["llama"],), lookup=False)
    got = asked_engine("abc", max_new_tokens=27, repetition_penalty=1.7, ignore_eos=True)
    assert got.last.stats.tokens_per_step == 9


def test_logprobs_are_the_llms_own_and_follow_the_tokens_shown(ask) -> None:
    settings = {"max_new_tokens": 20, "ignore_eos": True, "logprobs": 3}
    plain = ask(lookup=False).submit("abcabcabc", **settings)
    plain_deltas = []
    while not plain_deltas or plain_deltas[-1].finish_reason is None:
        plain_deltas.append(plain[1].get(timeout=60))
    tree = ask().submit("abcabcabc", **settings)
    tree_deltas = []
    while not tree_deltas or tree_deltas[-1].finish_reason is None:
        tree_deltas.append(tree[1].get(timeout=60))
    one, two = ([lp for d in ds for lp in d.logprobs] for ds in (plain_deltas, tree_deltas))
    assert [lp.token for lp in one] == [t for d in plain_deltas for t in d.tokens]
    assert [lp.token for lp in two] == [lp.token for lp in one]
    for mine, theirs in zip(two, one, strict=True):
        assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert mine.top[0][0] == mine.token
        assert len(mine.top) == 3


def test_stop_token_ids_end_the_answer_unshown(ask) -> None:
    asked_engine = ask()
    free = asked_engine("abc", max_new_tokens=20, ignore_eos=True).tokens
    stop = free[7]
    got = asked_engine("abc", max_new_tokens=20, ignore_eos=True, stop_token_ids=(stop,))
    assert got.tokens == free[: free.index(stop)]
    assert got.last.finish_reason == "stop"
