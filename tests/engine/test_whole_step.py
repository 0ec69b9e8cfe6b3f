"""The engine's own step on a tiny transformer keeps the LLM's joint law, by enumeration.

test_exactness.py proves the algorithms in float64; here the same walk goes through the real
drafter, paged caches, tree attention and commit, in the models' float32.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from specinfer.choices import Choices
from specinfer.config import EngineConfig
from specinfer.draft.drafter import Drafter
from specinfer.draft.expansion import Expansion
from specinfer.draft.lookup import PromptLookup
from specinfer.draft.planner import Planner
from specinfer.draft.pool import Pool
from specinfer.draft.ranks import Profile
from specinfer.draft.shape import Shape
from specinfer.lean import load_llm
from specinfer.llm import CausalLM
from specinfer.request import Request, SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.speculate import Speculator
from specinfer.ssm import SSM, load_ssm
from specinfer.testing.law import exact_law
from specinfer.testing.toy import write_tiny_model
from specinfer.text import TextStream
from specinfer.warp import warp

from .test_ssm import write_borrowing

CPU = torch.device("cpu")
VOCAB = 3
PROMPT = (1, 2, 1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("three-tokens")
    return [write_tiny_model(base / str(i), "llama", seed=i, vocab=VOCAB) for i in range(3)]


def emitted(
    llm: CausalLM, drafters: list[Drafter], params: SamplingParams, choices: Choices
) -> tuple[int, ...]:
    """Run one request to its end and leave nothing behind."""
    cache = llm.new_cache(tokens=64, page_size=4)
    speculator = Speculator(llm, cache, Pool(drafters), "auto")
    scheduler = Scheduler(
        speculator, max_batch=1, prefill_rows=64, queue_limit=1, tree_rows=24, drawn=True
    )
    request = Request(
        prompt=PROMPT,
        params=params,
        sink=lambda delta: None,
        choices=choices,
        text=TextStream(lambda ids: ""),
        eos=frozenset(),
        limit=64,
    )
    scheduler.add(request)
    while scheduler.busy:
        scheduler.step()
    assert cache.used == 0
    return tuple(request.tokens[len(PROMPT) :])


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

    def drafters() -> list[Drafter]:
        expansions = [expansion(SSM(ssm, None), shape, replacement=replacement) for ssm in pool]
        return expansions + [PromptLookup(depth=shape.depth, nodes=4)] * lookup

    check_joint_law(folders[0], llm, drafters, shape.depth)


@pytest.mark.parametrize("replacement", [False, True])
def test_joint_law_is_the_llms_beside_an_ssm_that_borrows(folders, tmp_path, replacement) -> None:
    """Its rows are int8 in C, over two of the three tokens; the LLM's are float32."""
    shape = Shape((2, 1, 0, 0))
    ssm = write_borrowing(tmp_path / "ssm", folders[0], torch.tensor([0, 2]))
    config = EngineConfig(model=folders[0], dtype="float32")
    llm = load_llm(folders[0], "float32", CPU)
    loaded = load_ssm(ssm, llm, config)

    def drafters() -> list[Drafter]:
        return [expansion(loaded, shape, replacement=replacement)]

    check_joint_law(folders[0], llm, drafters, shape.depth)


def expansion(ssm: SSM, shape: Shape, *, replacement: bool) -> Drafter:
    return Expansion(
        ssm.model,
        ssm.model.new_cache(tokens=64, page_size=4),
        Planner(lambda rates: [shape], Profile()),
        vocab=VOCAB,
        prefill_rows=64,
        vocabulary=ssm.vocabulary,
        replacement=replacement,
    )


def check_joint_law(
    folder: Path, llm: CausalLM, drafters: Callable[[], list[Drafter]], depth: int
) -> None:
    """Walk every outcome of a step and compare with transformers' own rows."""
    params = SamplingParams(temperature=0.8, max_new_tokens=depth + 1, ignore_eos=True)
    got = exact_law(lambda choices: emitted(llm, drafters(), params, choices))
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for sequence in itertools.product(range(VOCAB), repeat=depth + 1):
        want = 1.0
        for place, token in enumerate(sequence):
            context = torch.tensor([[*PROMPT, *sequence[:place]]])
            with torch.inference_mode():
                row = reference(context).logits[0, -1:]
            want *= float(warp(row, params)[0, token])
        assert got.get(sequence, 0.0) == pytest.approx(want, abs=2e-6)
