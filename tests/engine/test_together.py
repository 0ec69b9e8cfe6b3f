"""A batch sampled at once, by kernels, says what the walks on the host say, draw by draw.

The walks are proved exact by enumeration (test_exactness.py, test_whole_step.py), so every answer
that is theirs has the LLM's law.  Here the kernels' reference is put in the numpy path's place.
"""

import gc
from collections.abc import Callable
from pathlib import Path
from weakref import ref

import pytest
import torch

from specinfer.assembly import assemble
from specinfer.choices import SeededChoices
from specinfer.config import EngineConfig, TreeShape
from specinfer.draft.children import add_drawn
from specinfer.draft.draft import Draft
from specinfer.draft.growth import Growth
from specinfer.draft.shape import Shape
from specinfer.grammar.constraint import Constraint
from specinfer.lean import load_llm
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.testing.automaton import Automaton
from specinfer.testing.toy import a_request, write_tiny_recurrent
from specinfer.text import TextStream
from specinfer.token_tree import TokenTree
from specinfer.tokenizer import Tokenizer
from specinfer.verify import together
from specinfer_kernels import Warp, warp_rows

WARP = ("temperature", "top_k", "top_p", "min_p")
CPU = torch.device("cpu")
VOCAB = 97
ANSWER = 10
PROMPTS = [[5, 6, 7, 5, 6, 7, 5, 6], [9], [20, 21, 22] * 9, [3, 1, 4, 1, 5, 9, 2, 6]]
HOT = {"temperature": 1.3}
KINDS: dict[str, dict[str, object]] = {
    "plain": {"temperature": 1.0},
    "warm": {"temperature": 0.7},
    "top-k": HOT | {"top_k": 5},
    "one left": HOT | {"top_k": 1},
    "top-p": HOT | {"top_p": 0.8},
    "min-p": HOT | {"min_p": 0.05},
    "all filters": HOT | {"top_k": 20, "top_p": 0.9, "min_p": 0.02},
    "penalties": HOT | {"repetition_penalty": 1.4, "presence_penalty": 0.5},
    "bias": HOT | {"logit_bias": {5: 4.0, 6: -100.0}},
    "not yet over": HOT | {"min_new_tokens": 9, "logit_bias": {0: 6.0}},
    "log-probabilities": HOT | {"logprobs": 2},
    "typical-p": HOT | {"typical_p": 0.7},
    "grammar": HOT | {"stop_token_ids": (96,)},
    "greedy": {},
    "greedy, penalised": {"repetition_penalty": 1.5},
    "greedy grammar": {"stop_token_ids": (96,)},
}
GRAMMAR = {
    "A": dict.fromkeys(range(1, 60), "B"),
    "B": dict.fromkeys(range(30, 90), "A") | {5: "C"},
    "C": {7: "A"},
}


class Bench:
    """An engine's parts, stepped by hand."""

    def __init__(self, config: EngineConfig) -> None:
        self._tokenizer = Tokenizer(config.model)
        llm = load_llm(config.model, config.dtype, CPU)
        self._speculator = assemble(config, llm, self._tokenizer)
        self._config = config

    def answers(self, kinds: list[str], batch: int = 64) -> list[list[int]]:
        """Return what is said to each kind of request, so many of them at a time."""
        requests = [self._request(kind, number) for number, kind in enumerate(kinds)]
        for start in range(0, len(requests), batch):
            scheduler = self._begun(requests[start : start + batch])
            while scheduler.busy:
                scheduler.step()
        assert self._speculator.cache.used == 0
        return [request.tokens[len(request.prompt) :] for request in requests]

    def take_steps(self, kinds: list[str], count: int) -> None:
        """Leave a batch after some steps, in the middle of its answers."""
        scheduler = self._begun([self._request(kind, number) for number, kind in enumerate(kinds)])
        for _ in range(count):
            scheduler.step()

    def _begun(self, requests: list[Request]) -> Scheduler:
        scheduler = Scheduler(
            self._speculator,
            max_batch=64,
            prefill_rows=20,  # long prompts are read beside others' trees
            queue_limit=64,
            tree_rows=self._config.most_nodes,
            drawn=self._config.drafts_decide,
        )
        for request in requests:
            scheduler.add(request)
        return scheduler

    def _request(self, kind: str, number: int) -> Request:
        settings = {"max_new_tokens": ANSWER, "ignore_eos": kind != "not yet over", "seed": number}
        grammar = Automaton(VOCAB, GRAMMAR) if "grammar" in kind else None
        return Request(
            prompt=tuple(PROMPTS[number % len(PROMPTS)]),
            params=SamplingParams(**(settings | KINDS[kind])),  # type: ignore[arg-type]
            sink=lambda delta: None,
            choices=SeededChoices(number),
            text=TextStream(self._tokenizer.decode),
            eos=self._tokenizer.eos,
            limit=200,
            constraint=Constraint(grammar) if grammar else None,
        )


@pytest.fixture(scope="module")
def recurrent(tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recurrent") / "ssm"
    return write_tiny_recurrent(folder, tiny["llama"], torch.arange(1, VOCAB, 2), scale=0.1)


Pools = Callable[[str], dict[str, object]]


@pytest.fixture
def pools(tiny, recurrent) -> Pools:
    """Return the settings of a pool by name."""
    tree = TreeShape((2, 1, 2))
    table: dict[str, dict[str, object]] = {
        "nobody": {"lookup": False},
        "look-up": {},
        "an SSM": {"lookup": False, "ssms": (tiny["ssm"],), "tree": tree},
        "the LLM itself": {"lookup": False, "ssms": (tiny["llama"],), "tree": tree},
        "all": {"ssms": (tiny["ssm"], tiny["qwen2"], recurrent), "tree": TreeShape((3, 2))},
    }
    return table.__getitem__


@pytest.fixture
def build(tiny, pools) -> Callable[..., Bench]:
    def build(pool: str, verifier: str) -> Bench:
        settings = {"dtype": "float32", "adaptive": False, "page_size": 4} | pools(pool)
        return Bench(EngineConfig(model=tiny["llama"], verifier=verifier, **settings))  # type: ignore[arg-type]

    return build


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have what is built from here on sample batches by the kernels' reference."""

    def switch() -> None:
        for place in ("speculate", "draft.growth"):
            monkeypatch.setattr(f"specinfer.{place}.samples_together", lambda device: True)

    return switch


@pytest.fixture
def alike(build: Callable[..., Bench], at_once: Callable[[], None]) -> Callable[..., bool]:
    """Tell whether requests of all kinds in one batch are answered the same on host and at once."""

    def alike(pool: str, verifier: str) -> bool:
        want = build(pool, verifier).answers([*KINDS])
        at_once()
        return build(pool, verifier).answers([*KINDS]) == want

    return alike


VERIFIERS = ["auto", "naive", "multi_step", "multi_step_wor", "traversal"]


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("pool", ["an SSM", "the LLM itself", "all"])
def test_answers_are_those_of_the_walks_on_the_host(alike, pool, verifier) -> None:
    """Their prompts end at different steps, so trees are verified beside what is being read."""
    assert alike(pool, verifier)


@pytest.mark.parametrize(
    ("pool", "verifier"),
    [("nobody", "auto"), ("nobody", "traversal"), ("look-up", "auto"), ("look-up", "multi_step")],
)
def test_so_they_are_without_an_ssm(alike, pool, verifier) -> None:
    assert alike(pool, verifier)


def test_so_they_are_where_laws_do_not_fit_into_memory_together(alike, monkeypatch) -> None:
    monkeypatch.setattr("specinfer.verify.together.MOST", 20 * VOCAB)
    assert alike("all", "auto")


@pytest.mark.parametrize("pool", ["nobody", "an SSM"])
def test_an_answer_is_the_same_alone_and_in_a_batch(build, at_once, pool) -> None:
    at_once()
    bench = build(pool, "auto")
    assert bench.answers([*KINDS], batch=1) == bench.answers([*KINDS], batch=5)


def test_the_kernels_choice_decides(build, monkeypatch) -> None:
    """By the same variable as for attention; a CPU's own way is to look at rows one by one."""
    called: list[object] = []
    walk = together.walk_trees

    def noted(*given: object, **named: object) -> torch.Tensor:
        called.append(named["rule"])
        return walk(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(together, "walk_trees", noted)
    want = build("an SSM", "auto").answers(["warm"])
    assert called == []
    monkeypatch.setenv("SPECINFER_KERNELS", "reference")
    assert build("an SSM", "auto").answers(["warm"]) == want
    assert set(called) == {"traversal"}


def test_an_ssm_may_have_more_padding_than_its_llm(at_once) -> None:
    """Whose rows, cut to the LLM's tokens, do not lie beside each other any more."""
    rows = torch.randn(1, 12, generator=torch.Generator().manual_seed(1))

    def grown() -> list[int]:
        drafts = [Draft(a_request([1, 2]), TokenTree.rooted_at(2)) for _ in range(2)]
        for draft, temperature in zip(drafts, (0.0, 1.0), strict=True):
            draft.request.params = SamplingParams(temperature=temperature)
            draft.begin(Shape((4, 0, 0, 0, 0)))
        Growth(9, None, CPU, replacement=False).grow(drafts, [rows, rows])
        return [token for draft in drafts for token in draft.tree.tokens]

    want = grown()
    at_once()
    assert grown() == want


def test_no_law_outlives_its_step(build, at_once, monkeypatch) -> None:
    """A request that then sat out would keep those of a whole batch: a level's are one tensor."""
    at_once()
    bench, laws = build("all", "auto"), []

    def warped(rows: torch.Tensor, warp: Warp) -> torch.Tensor:
        made = warp_rows(rows, warp)
        laws.append(ref(made))
        return made

    monkeypatch.setattr("specinfer.draft.level.warp_rows", warped)
    bench.take_steps(["warm"] * 3, 3)
    gc.collect()
    assert len(laws) > 10
    assert not any(law() is not None for law in laws)


SLIPS: dict[str, tuple[str, str, object]] = {
    "numbers used twice": ("an SSM", "choices.SeededChoices.skip", lambda self, count: None),
    "the root's number at every node": (
        "look-up",
        "token_tree.TokenTree.depths",
        lambda tree: [0] * len(tree),
    ),
    "one request's temperature for all": (
        "an SSM",
        "verify.together.warp_of",
        lambda sent: Warp(*(sent[n][:1].expand_as(sent[n]).contiguous() for n in WARP)),
    ),
    "logits as they are": (
        "an SSM",
        "verify.together.taken_as_they_are",
        lambda request: True,
    ),
    "draws under the whole law": (
        "an SSM",
        "draft.level.add_drawn",
        lambda *given, replacement: add_drawn(*given, replacement=True),
    ),
    "a level's laws in another order": (
        "an SSM",
        "draft.level.warp_rows",
        lambda rows, warp: warp_rows(rows, warp).roll(1, 0),
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_caught(build, at_once, monkeypatch, slip) -> None:
    pool, place, instead = SLIPS[slip]
    want = build(pool, "auto").answers([*KINDS] * 3)
    at_once()
    monkeypatch.setattr(f"specinfer.{place}", instead)
    assert build(pool, "auto").answers([*KINDS] * 3) != want
