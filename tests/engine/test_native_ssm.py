"""An SSM that borrows from its LLM runs in decoder.c, whatever the LLM itself is run by."""

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specinfer.config import EngineConfig
from specinfer.draft.children import fitted
from specinfer.draft.expansion import Expansion
from specinfer.draft.planner import Planner
from specinfer.draft.ranks import Profile
from specinfer.draft.shape import Shape
from specinfer.lean import LeanLM, load_llm
from specinfer.lean.native import NativeDecoder
from specinfer.llm import CausalLM
from specinfer.sampling import SamplingParams
from specinfer.ssm import SSM, load_ssm
from specinfer.testing.toy import a_request, write_tiny_model
from specinfer.token_tree import ROOT
from specinfer.tree_attention import chain, plan
from specinfer.warp import warp

from .test_ssm import KNOWN, write_borrowing

CPU = torch.device("cpu")
LLMS = {
    "float32": lambda folder: load_llm(folder, "float32", CPU),
    "bfloat16": lambda folder: load_llm(folder, "bfloat16", CPU),
    "int8": lambda folder: load_llm(folder, "auto", CPU, "int8"),
    "transformers": lambda folder: CausalLM.load(folder, "bfloat16", CPU),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An LLM, and an SSM that borrows from it."""
    base = tmp_path_factory.mktemp("native-ssm")
    llm = write_tiny_model(base / "llm", "llama")
    return llm, write_borrowing(base / "ssm", llm)


@pytest.fixture(scope="module", params=LLMS)
def ssm(request: pytest.FixtureRequest, folders: tuple[Path, Path]) -> SSM:
    folder, borrowing = folders
    loaded = load_ssm(borrowing, LLMS[request.param](folder), EngineConfig(model=folder))
    if not isinstance(loaded.model, LeanLM) or not isinstance(loaded.model.decoder, NativeDecoder):
        pytest.skip("no AVX-512 VNNI or no C compiler")
    return loaded


def row(ssm: SSM, tokens: list[int]) -> Tensor:
    """Return the SSM's logits behind tokens in one pass, over the LLM's vocabulary, [1, 97]."""
    cache = ssm.model.new_cache(tokens=128, page_size=16)
    sequence = cache.open([])
    cache.reserve(sequence, len(tokens))
    logits = ssm.model.forward(plan(cache, [chain(sequence, tokens, wanted=True)]))
    return fitted(logits, 97, ssm.vocabulary)


def expansion(ssm: SSM, shape: Shape, *, replacement: bool = True) -> Expansion:
    return Expansion(
        ssm.model,
        ssm.model.new_cache(tokens=512, page_size=16),
        Planner(lambda rates: [shape], Profile()),
        vocab=97,
        prefill_rows=512,
        vocabulary=ssm.vocabulary,
        replacement=replacement,
    )


CHAIN = Shape((1, 1, 1, 1, 0))
UNEVEN = Shape((2, 3, 1, 1, 0, 1, 0, 0, 0))


@pytest.mark.parametrize("shape", [CHAIN, UNEVEN], ids=["chain", "uneven"])
@pytest.mark.parametrize("replacement", [True, False])
def test_every_draw_carries_the_very_law_it_was_drawn_from(ssm: SSM, shape, replacement) -> None:
    """The bits of q are those of the SSM alone behind the node's path, warped."""
    drafter = expansion(ssm, shape, replacement=replacement)
    asked = a_request([5, 9, 14, 3, 60, 2])
    asked.params = SamplingParams(max_new_tokens=40, temperature=0.7, top_p=0.9, seed=3)
    drawn = 0
    for _ in range(3):
        tree = drafter.propose([asked])[0]
        for node, draws in enumerate(tree.draws):
            for draw in draws:
                law = warp(row(ssm, asked.tokens + tree.tokens_to(node)), asked.params)[0]
                assert draw.law is not None and torch.equal(draw.law, law)
                assert law[tree.tokens[draw.child]] > 0 and law.count_nonzero() <= len(KNOWN)
                drawn += 1
        asked.tokens += [*(tree.tokens_to(len(tree) - 1)), 7]
    assert drawn >= 12
    drafter.forget(asked)
    assert drafter.cache.used == 0


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("shape", [CHAIN, UNEVEN], ids=["chain", "uneven"])
def test_greedy_children_are_its_likeliest_tokens(ssm: SSM, shape: Shape, batch: int) -> None:
    """Alone, over rows laid out once, and in a batch, level by level; with all that is cached."""
    drafter = expansion(ssm, shape)
    requests = [a_request([5, 9, 14, 3, 60, 2 + number]) for number in range(batch)]
    for _ in range(4):
        for asked, tree in zip(requests, drafter.propose(requests), strict=True):
            assert len(tree) == len(shape.children)
            for node, width in enumerate(shape.children):
                best = row(ssm, asked.tokens + tree.tokens_to(node))[0].topk(max(1, width)).indices
                assert [tree.tokens[d.child] for d in tree.draws[node]] == best[:width].tolist()
            asked.tokens += [*tree.tokens_to(tree.draws[ROOT][-1].child), 4]


def test_a_tree_ends_with_the_answer(ssm: SSM) -> None:
    drafter, asked = expansion(ssm, UNEVEN), a_request([5, 9, 14], room=3)
    assert len(drafter.propose([asked])[0]) == 1 + 2 + 4
    asked.tokens += [7, 7]
    assert len(drafter.propose([asked])[0]) == 1


def test_a_tree_ends_where_children_are_missing(folders, tmp_path) -> None:
    """Of three children it knows two: rows laid out for what would follow the third stay unrun."""
    two = write_borrowing(tmp_path / "two", folders[0], torch.tensor([5, 8]))
    loaded = load_ssm(two, LLMS["float32"](folders[0]), EngineConfig(model=folders[0]))
    drafter, asked = expansion(loaded, Shape((1, 3, 1, 1, 1, 0, 0, 0))), a_request([5, 9, 14])
    for _ in range(2):
        tree = drafter.propose([asked])[0]
        assert tree.parents == [-1, 0, 1, 1] and {*tree.tokens[1:]} <= {5, 8}
        asked.tokens += [*tree.tokens_to(3), 4]


def test_an_ssm_of_another_architecture_is_run_by_transformers(tmp_path, caplog) -> None:
    llm = write_tiny_model(tmp_path / "llm", "opt")
    small = write_borrowing(tmp_path / "ssm", llm)
    with caplog.at_level(logging.WARNING):
        loaded = load_ssm(small, load_llm(llm, "float32", CPU), EngineConfig(model=llm))
    assert not isinstance(loaded.model, LeanLM)
    assert "drafts without decoder.c, which is slower: models of type opt" in caplog.text
