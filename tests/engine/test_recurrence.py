"""Trees of recurrent SSMs in the engine: what they say, where they begin, that nothing is lost."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from specinfer.config import EngineConfig, TreeShape
from specinfer.draft.children import fitted
from specinfer.draft.recurrence import Recurrence
from specinfer.draft.shape import Shape
from specinfer.engine import Engine
from specinfer.lean import load_llm
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.ssm import RecurrentSSM, load_ssm
from specinfer.testing.ask import Asker
from specinfer.testing.step import recurrence
from specinfer.testing.toy import TINY, a_request, write_tiny_recurrent
from specinfer.token_tree import ROOT
from specinfer.warp import warp

from .test_ssm import write_borrowing

CPU = torch.device("cpu")
KNOWN = torch.arange(1, 97, 2)
CHAIN = Shape((1, 1, 1, 1, 0))
UNEVEN = Shape((2, 3, 1, 1, 0, 1, 0, 0, 0))
PROMPTS = ["Hello world", "to be or not to be", "abcabcabc", "x"]


@pytest.fixture(scope="module")
def folders(tiny, tmp_path_factory) -> dict[str, Path]:
    """A recurrent SSM for each LLM."""
    base = tmp_path_factory.mktemp("recurrent")
    return {kind: write_tiny_recurrent(base / kind, tiny[kind], KNOWN) for kind in TINY}


@pytest.fixture(scope="module")
def ssm(tiny, folders) -> RecurrentSSM:
    llm = load_llm(tiny["llama"], "float32", CPU)
    loaded = load_ssm(folders["llama"], llm, EngineConfig(model=tiny["llama"]))
    assert isinstance(loaded, RecurrentSSM)
    return loaded


def begun(tokens: list[int], number: int, **params: object) -> Request:
    """Return a request as it stands once the LLM has said something."""
    request = a_request(tokens)
    request.params = SamplingParams(max_new_tokens=60, **params)  # type: ignore[arg-type]
    request.state = torch.randn(64, generator=torch.Generator().manual_seed(number))
    return request


def row(ssm: RecurrentSSM, request: Request, path: list[int]) -> Tensor:
    """Return the logits behind a path, token by token from the request's state, [97]."""
    assert request.state is not None
    state = request.state[None]
    for token in [request.tokens[-1], *path]:
        state, logits = ssm.step(state, [token])
    return fitted(logits, 97, ssm.vocabulary)[0]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("shape", [CHAIN, UNEVEN], ids=["chain", "uneven"])
def test_greedy_children_are_its_likeliest_tokens(ssm, shape: Shape, batch: int) -> None:
    drafter = recurrence(ssm, shape, vocab=97, replacement=True)
    requests = [begun([5, 9, number], number) for number in range(batch)]
    for _ in range(3):
        for asked, tree in zip(requests, drafter.propose(requests), strict=True):
            assert len(tree) == len(shape.children)
            for node, width in enumerate(shape.children):
                best = row(ssm, asked, tree.tokens_to(node)).topk(max(1, width)).indices
                assert [tree.tokens[d.child] for d in tree.draws[node]] == best[:width].tolist()
            asked.tokens += [*tree.tokens_to(tree.draws[ROOT][-1].child), 4]
            asked.state = torch.randn(64)


@pytest.mark.parametrize("shape", [CHAIN, UNEVEN], ids=["chain", "uneven"])
@pytest.mark.parametrize("replacement", [True, False])
def test_every_draw_carries_the_very_law_it_was_drawn_from(ssm, shape, replacement) -> None:
    drafter = recurrence(ssm, shape, vocab=97, replacement=replacement)
    warped = {"temperature": 3.0, "top_p": 0.9}
    batch = [begun([5, 9, 3], number, seed=number, **warped) for number in range(3)]
    for asked, tree in zip(batch, drafter.propose(batch), strict=True):
        draws = [(node, draw) for node, draws in enumerate(tree.draws) for draw in draws]
        assert len(draws) >= 4
        for node, draw in draws:
            law = warp(row(ssm, asked, tree.tokens_to(node))[None], asked.params)[0]
            assert draw.law is not None and torch.equal(draw.law, law)


def test_it_sits_out_until_the_llm_has_said_something(ssm) -> None:
    drafter = recurrence(ssm, CHAIN, vocab=97, replacement=True)
    early, late = a_request([5, 9]), begun([5, 9], 1)
    assert [len(tree) for tree in drafter.propose([early, late])] == [1, 5]
    early.state = torch.randn(64)
    assert [len(tree) for tree in drafter.propose([early, late])] == [5, 5]
    drafter.forget(early)
    assert [len(tree) for tree in drafter.propose([late], resting=True)] == [1]


def test_a_tree_ends_with_the_answer(ssm) -> None:
    drafter, asked = recurrence(ssm, UNEVEN, vocab=97, replacement=True), begun([5, 9], 1)
    asked.params = SamplingParams(max_new_tokens=3)
    assert len(drafter.propose([asked])[0]) == 1 + 2 + 4
    asked.tokens += [7, 7]
    assert len(drafter.propose([asked])[0]) == 1


def told(asker: Asker, **params: object) -> list[list[int]]:
    waiting = [asker.submit(prompt, **params)[1] for prompt in PROMPTS]
    return [asker.gather(deltas).tokens for deltas in waiting]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with an SSM of layers"])
@pytest.mark.parametrize("kind", TINY)
def test_greedy_answers_are_plain_decodings(ask, tiny, folders, tmp_path, kind, beside) -> None:
    others = (write_borrowing(tmp_path / "layers", tiny[kind]),) if beside else ()
    plain = ask(kind, lookup=False)
    tree = ask(kind, ssms=(folders[kind], *others), lookup=False, tree=TreeShape((2, 1, 2)))
    want = told(plain, max_new_tokens=24, ignore_eos=True)
    assert told(tree, max_new_tokens=24, ignore_eos=True) == want
    last = tree(PROMPTS[0], max_new_tokens=9, ignore_eos=True).last.stats
    drafted = {drafter.name: drafter.drafted for drafter in last.drafters}
    assert drafted[folders[kind].name] > 0 and len(drafted) == 1 + beside


@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_it_drafts_for_an_llm_in_c_and_adapts(ask, folders, quantization) -> None:
    settings = {"dtype": "bfloat16", "quantization": quantization}
    plain = ask(lookup=False, **settings)
    tree = ask(ssms=(folders["llama"],), adaptive=True, **settings)
    for _ in range(3):
        want = told(plain, max_new_tokens=40, ignore_eos=True)
        assert told(tree, max_new_tokens=40, ignore_eos=True) == want


def test_one_that_knows_the_answer_gains(ask, tiny, tmp_path) -> None:
    """With nothing learnt, a state is the LLM's last: its likeliest token, again and again."""
    ssm = write_tiny_recurrent(tmp_path / "same", tiny["llama"], torch.arange(97), scale=0.0)
    asked = ask(ssms=(ssm,), lookup=False, tree=TreeShape((1, 1, 1)))
    stats = asked([7] * 20, max_new_tokens=60, ignore_eos=True, logit_bias={7: 100.0}).last.stats
    assert stats.tokens_per_step > 3


def test_a_preempted_request_goes_on_from_its_state(ask, folders) -> None:
    """Pages for one and a half answers: the younger steps back, is read again and drafts on."""
    plain = ask(lookup=False)
    tight = ask(ssms=(folders["llama"],), lookup=False, cache_tokens=112, page_size=8, max_batch=2)
    engine, states = tight.engine, []
    scheduler = engine._scheduler
    preempt = scheduler._preempt

    def noted(entry):  # type: ignore[no-untyped-def]
        states.append(entry.request.state)
        preempt(entry)

    scheduler._preempt = noted  # type: ignore[method-assign]
    assert told(tight, max_new_tokens=50, ignore_eos=True) == told(
        plain, max_new_tokens=50, ignore_eos=True
    )
    assert any(state is not None for state in states)


def test_seeded_answers_are_the_same_in_any_company(ask, folders) -> None:
    asked = ask(ssms=(folders["llama"],), adaptive=True, max_batch=8)
    params = {"max_new_tokens": 30, "temperature": 0.8, "seed": 11, "ignore_eos": True}
    alone = [asked(prompt, **params).tokens for prompt in PROMPTS]
    mates = [asked.submit("some company", max_new_tokens=90)[1] for _ in range(3)]
    assert told(asked, **params) == alone
    for deltas in mates:
        asked.gather(deltas)


def test_an_engine_without_one_keeps_no_states(ask, folders) -> None:
    for ssms, kept in (((), False), ((folders["llama"],), True)):
        speculator = ask(ssms=ssms)
        pool = speculator.engine._scheduler._speculator.pool
        assert pool.reads_states is kept
        assert any(isinstance(one, Recurrence) for one in pool.drafters) is kept


@pytest.mark.slow
def test_greedy_answers_of_the_real_model_are_plain_decodings(tmp_path) -> None:
    from specinfer.model_store import resolve_model

    model = resolve_model("default")
    ssm = write_tiny_recurrent(
        tmp_path / "random", model, torch.arange(0, 49152, 6), inner=1536, scale=0.05
    )
    answers = []
    for ssms in ((), (ssm,)):
        config = EngineConfig(
            model=model,
            dtype="float32",
            ssms=ssms,
            lookup=False,
            adaptive=False,
            tree=TreeShape((2, 2, 1)),
        )
        engine = Engine.load(config)
        answers.append(told(Asker(engine), max_new_tokens=24))
        engine.close()
    assert answers[0] == answers[1]
