"""SSMs that borrow from the LLM and know few of its tokens: exact, and refused when wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from specinfer.config import TreeShape
from specinfer.draft.children import draw_children, fitted
from specinfer.errors import ModelFolderError
from specinfer.request import SamplingParams
from specinfer.ssm import compact, restored, save_ssm
from specinfer.testing.toy import TINY, table_model
from specinfer.warp import warp

from .test_exactness import CAUGHT, SAMPLING, WARPED, worst_error

KNOWN = torch.tensor([0, 3, 5, 8, 13, 21, 34, 55, 89])


def write_borrowing(folder: Path, llm: Path, vocabulary: torch.Tensor = KNOWN) -> Path:
    """Write an SSM that is the LLM's own body, over a few of its tokens."""
    model: Any = AutoModelForCausalLM.from_pretrained(llm, dtype=torch.float32)
    embedding = model.get_input_embeddings().weight
    learnt = {n: v for n, v in model.named_parameters() if v is not embedding and "head" not in n}
    save_ssm(folder, model.config, learnt, vocabulary, embedding, {"licence": "none"})
    return folder


@pytest.mark.parametrize("params", [SAMPLING, WARPED], ids=["plain", "warped"])
@pytest.mark.parametrize(
    ("verifier", "replacement"),
    [("naive", True), ("multi_step", True), ("multi_step_wor", False), ("traversal", True)],
)
def test_a_draft_vocabulary_keeps_the_llms_law(verifier, replacement, params) -> None:
    """The SSM's law is over two of the LLM's three tokens; enumeration over every outcome."""
    vocabulary = torch.tensor([0, 2])
    small = table_model(2, seed=77)

    def draw(tree, node, row, width, params, choices) -> None:
        known = small(tuple(tree.tokens_to(node))).log()[None]
        logits = fitted(known, len(row), vocabulary)[0]
        assert warp(logits[None], params)[0, 1] == 0  # q is zero outside the draft vocabulary
        draw_children(tree, node, logits, width, params, choices, replacement=replacement)

    widths = (1, 1) if verifier != "naive" else (2,)
    error = worst_error(3, widths, ssms=1, params=params, verifier=verifier, draw=draw)
    assert error < 1e-12 < CAUGHT


def test_ids_are_mapped_exactly() -> None:
    rows = torch.randn(4, len(KNOWN))
    spread = fitted(rows, 97, KNOWN)
    assert spread.shape == (4, 97)
    assert torch.equal(spread[:, KNOWN], rows)
    assert torch.isinf(spread).sum() == 4 * (97 - len(KNOWN))


@pytest.mark.parametrize("kind", TINY)
def test_a_borrowing_ssm_drafts_and_loses_nothing(ask, tiny, tmp_path, kind) -> None:
    ssm = write_borrowing(tmp_path / "small", tiny[kind])
    plain = ask(kind, lookup=False)
    tree = ask(kind, ssms=(ssm,), lookup=False, tree=TreeShape((2, 1, 2)))
    for prompt in ("Hello world", "to be or not to be"):
        want = plain(prompt, max_new_tokens=24, ignore_eos=True).tokens
        assert tree(prompt, max_new_tokens=24, ignore_eos=True).tokens == want


def test_with_all_tokens_it_drafts_what_the_llm_says(ask, tiny, tmp_path) -> None:
    ssm = write_borrowing(tmp_path / "whole", tiny["llama"], torch.arange(97))
    got = ask(ssms=(ssm,), lookup=False, tree=TreeShape((1, 1)))
    stats = got("abcdef", max_new_tokens=30, ignore_eos=True).last.stats
    assert stats.tokens_per_step > 2.5  # int8 rounding may turn a near tie


def test_int8_rounds_by_at_most_half_a_step() -> None:
    weights = {"a.weight": torch.randn(6, 40) * 3, "norm.weight": torch.randn(5)}
    again = restored(compact(weights))
    step = weights["a.weight"].abs().amax(1, keepdim=True) / 127
    assert ((again["a.weight"] - weights["a.weight"]).abs() <= step / 2 * 1.001).all()
    assert torch.equal(again["norm.weight"], weights["norm.weight"])
    twice = compact(again)
    assert torch.equal(twice["a.weight.int8"], compact(weights)["a.weight.int8"])


def refuse(ask: Any, ssm: Path, words: str, kind: str = "llama") -> None:
    with pytest.raises(ModelFolderError, match=words):
        ask(kind, ssms=(ssm,))


def test_an_ssm_of_another_llm_is_refused(ask, tiny, tmp_path) -> None:
    refuse(ask, write_borrowing(tmp_path / "s", tiny["ssm"]), "made for another LLM")
    refuse(ask, write_borrowing(tmp_path / "q", tiny["llama"]), "made for another LLM", "qwen2")


def test_a_damaged_folder_is_refused_by_name(ask, tiny, tmp_path) -> None:
    ssm = write_borrowing(tmp_path / "s", tiny["llama"])
    settings = json.loads((ssm / "specinfer.json").read_text())
    for change, words in (({"format": 99}, "not of format"), ({"role": "llm"}, "role is 'llm'")):
        (ssm / "specinfer.json").write_text(json.dumps(settings | change))
        refuse(ask, ssm, words)
    (ssm / "specinfer.json").unlink()
    refuse(ask, ssm, "specinfer.json: cannot be read")
    (ssm / "ssm.safetensors").write_bytes(b"half a file")
    (ssm / "specinfer.json").write_text(json.dumps(settings))
    refuse(ask, ssm, "ssm.safetensors: cannot be read")


def test_a_vocabulary_beyond_the_llms_is_refused(ask, tiny, tmp_path) -> None:
    for number, ids in enumerate(([0, 97], [3, 2], [-1, 2])):
        ssm = write_borrowing(tmp_path / str(number), tiny["llama"], torch.tensor(ids))
        refuse(ask, ssm, "ascending ids")


@pytest.mark.parametrize("kind", ["llama", "opt"])
def test_weights_that_do_not_fit_the_config_are_refused(ask, tiny, tmp_path, kind) -> None:
    ssm = write_borrowing(tmp_path / "s", tiny[kind])
    config = json.loads((ssm / "config.json").read_text())
    (ssm / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    refuse(ask, ssm, "disagree", kind)


def test_int8_ssms_lose_nothing(ask, tiny, tmp_path) -> None:
    ssm = write_borrowing(tmp_path / "small", tiny["llama"])
    plain = ask(lookup=False, quantization="int8")
    tree = ask(ssms=(ssm,), lookup=False, quantization="int8", tree=TreeShape((2, 1)))
    want = plain("Hello world", max_new_tokens=24, ignore_eos=True).tokens
    assert tree("Hello world", max_new_tokens=24, ignore_eos=True).tokens == want


@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_a_bfloat16_llm_lends_where_no_c_runs(
    ask, tiny, tmp_path, monkeypatch, quantization
) -> None:
    """Restored layers stayed float32 beside bfloat16 activations, and the engine died."""
    monkeypatch.setenv("CC", "no-such-compiler")
    ssm = write_borrowing(tmp_path / "small", tiny["llama"])
    tree = ask(ssms=(ssm,), lookup=False, dtype="bfloat16", quantization=quantization)
    assert len(tree("Hello world", max_new_tokens=8, ignore_eos=True).tokens) == 8


def test_greedy_children_are_known_tokens() -> None:
    from specinfer.token_tree import TokenTree

    tree = TokenTree.rooted_at(0)
    row = fitted(torch.randn(1, len(KNOWN)), 97, KNOWN)[0]
    draw_children(tree, 0, row, 4, SamplingParams(), None)  # type: ignore[arg-type]
    assert {*tree.tokens[1:]} <= {*KNOWN.tolist()}
