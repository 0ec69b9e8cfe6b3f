"""The engine's own step on a tiny transformer keeps the LLM's joint law, by enumeration.

test_exactness.py proves the algorithms in float64; here the same walk goes through the real
drafter, paged caches, tree attention and commit, in the models' float32.
"""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from specinfer.choices import Choices
from specinfer.config import EngineConfig
from specinfer.draft.lookup import PromptLookup
from specinfer.draft.pool import Pool
from specinfer.draft.shape import Shape
from specinfer.lean import load_llm
from specinfer.llm import CausalLM
from specinfer.sampling import SamplingParams
from specinfer.ssm import SSM, RecurrentSSM, load_ssm
from specinfer.testing.law import Given, Recorded, Replay, exact_law
from specinfer.testing.step import answered, expansion, recurrence
from specinfer.testing.toy import write_tiny_model, write_tiny_recurrent
from specinfer.warp import warp

from .test_ssm import write_borrowing

CPU = torch.device("cpu")
VOCAB = 3
PROMPT = (1, 2, 1)
NEAR = 1e-3  # the end of an outcome's range, by how much of it


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("three-tokens")
    return [write_tiny_model(base / str(i), "llama", seed=i, vocab=VOCAB) for i in range(3)]


@pytest.mark.parametrize(
    ("children", "ssms", "lookup"),
    [
        ((2,), 1, False),
        ((1,), 2, False),
        ((1, 1), 1, False),
        ((1,), 1, True),
        ((1,), 0, True),
        ((2, 1, 0), 1, False),  # the first child has a child, the second has none
        ((2, 0, 1), 1, False),
    ],
)
@pytest.mark.parametrize("replacement", [False, True])
def test_joint_law_is_the_llms(folders, children, ssms, lookup, replacement) -> None:
    shape = Shape((*children, *[0] * (1 + sum(children) - len(children))))
    llm, *pool = (CausalLM.load(f, "float32", CPU) for f in folders[: 1 + ssms])

    def drafting() -> Pool:
        ssms = [
            expansion(SSM(ssm, None), shape, vocab=VOCAB, replacement=replacement) for ssm in pool
        ]
        return Pool(ssms, [PromptLookup()] * lookup, nodes=4, depth=shape.depth)

    check_joint_law(folders[0], llm, drafting, shape.depth)


@pytest.mark.parametrize("replacement", [False, True])
def test_joint_law_is_the_llms_beside_an_ssm_that_borrows(folders, tmp_path, replacement) -> None:
    """Its rows are int8 in C, over two of the three tokens; the LLM's are float32."""
    shape = Shape((2, 1, 0, 0))
    ssm = write_borrowing(tmp_path / "ssm", folders[0], torch.tensor([0, 2]))
    config = EngineConfig(model=folders[0], dtype="float32")
    llm = load_llm(folders[0], "float32", CPU)
    loaded = load_ssm(ssm, llm, config)

    check_joint_law(
        folders[0],
        llm,
        lambda: Pool([expansion(loaded, shape, vocab=VOCAB, replacement=replacement)]),
        shape.depth,
    )


@pytest.mark.parametrize(("children", "beside"), [((2,), False), ((1, 1), False), ((1,), True)])
@pytest.mark.parametrize("replacement", [False, True])
def test_joint_law_is_the_llms_beside_a_recurrent_ssm(
    folders, tmp_path, children, beside, replacement
) -> None:
    """It begins once the LLM has said a token; its rows are int8 in C, over two of three tokens."""
    shape = Shape((*children, *[0] * (1 + sum(children) - len(children))))
    known = torch.tensor([0, 2])
    llm = load_llm(folders[0], "float32", CPU)
    config = EngineConfig(model=folders[0], dtype="float32")
    small = write_tiny_recurrent(tmp_path / "ssm", folders[0], known, scale=0.1)
    ssm, other = load_ssm(small, llm, config), CausalLM.load(folders[1], "float32", CPU)
    assert isinstance(ssm, RecurrentSSM)

    def drafting() -> Pool:
        given = {"vocab": VOCAB, "replacement": replacement}
        others = [expansion(SSM(other, None), shape, **given)] if beside else []
        return Pool([recurrence(ssm, shape, **given), *others])

    check_joint_law(folders[0], llm, drafting, 1 + shape.depth)


@pytest.mark.parametrize(
    ("children", "ssms", "lookup", "replacement"),
    [
        ((2,), 1, False, True),
        ((2,), 1, False, False),
        ((1,), 2, False, False),
        ((1, 1), 1, False, False),
        ((1,), 1, True, False),
        ((1,), 0, True, False),
    ],
)
def test_every_outcome_is_the_same_where_kernels_sample(
    folders, children, ssms, lookup, replacement, monkeypatch
) -> None:
    """By numbers near both ends of each decision's range, so that its probability is the same."""
    shape = Shape((*children, *[0] * sum(children)))
    llm, *pool = (CausalLM.load(f, "float32", CPU) for f in folders[: 1 + ssms])
    params = SamplingParams(temperature=0.8, max_new_tokens=shape.depth + 1, ignore_eos=True)

    def answer(choices: Choices) -> list[int]:
        ssms = [
            expansion(SSM(ssm, None), shape, vocab=VOCAB, replacement=replacement) for ssm in pool
        ]
        drafting = Pool(ssms, [PromptLookup()] * lookup, nodes=4, depth=shape.depth)
        return answered(llm, drafting, PROMPT, params, choices).tokens

    outcomes: list[tuple[list[float], list[int]]] = []

    def on_the_host(choices: Replay) -> int:
        tokens = answer(choices)
        outcomes.append((choices.numbers, tokens))  # type: ignore[attr-defined]
        return 0

    for place in (NEAR, 1 - NEAR) if shape.depth == 1 else (0.5,):  # a deeper tree has thousands
        exact_law(on_the_host, partial(Recorded, place=place))
    for place in ("speculate", "draft.growth"):
        monkeypatch.setattr(f"specinfer.{place}.samples_together", lambda device: True)
    assert len(outcomes) > 10
    for numbers, tokens in outcomes:
        assert answer(Given(numbers)) == tokens


def check_joint_law(folder: Path, llm: CausalLM, drafting: Callable[[], Pool], depth: int) -> None:
    """Walk every outcome of depth + 1 tokens and compare with transformers' own rows."""
    params = SamplingParams(temperature=0.8, max_new_tokens=depth + 1, ignore_eos=True)

    def emitted(choices: Choices) -> tuple[int, ...]:
        request = answered(llm, drafting(), PROMPT, params, choices)
        return tuple(request.tokens[len(PROMPT) :])

    got = exact_law(emitted)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for sequence in itertools.product(range(VOCAB), repeat=depth + 1):
        want = 1.0
        for place, token in enumerate(sequence):
            context = torch.tensor([[*PROMPT, *sequence[:place]]])
            with torch.inference_mode():
                row = reference(context).logits[0, -1:]
            want *= float(warp(row, params)[0, token])
        assert got.get(sequence, 0.0) == pytest.approx(want, abs=2e-6)
