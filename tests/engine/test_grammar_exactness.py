"""Under a grammar the law of the answer is the LLM's, masked and renormalised token by token.

First the algorithms, by enumeration in float64; then the engine's own step on a tiny transformer.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from specinfer.adjust import adjust, adjust_lazily
from specinfer.choices import Choices
from specinfer.config import TreeShape
from specinfer.draft.children import draw_children
from specinfer.draft.forced import Forced, within_grammar
from specinfer.draft.lookup import PromptLookup
from specinfer.draft.merge import merge
from specinfer.draft.pool import Pool
from specinfer.draft.shape import Shape
from specinfer.grammar.constraint import Constraint
from specinfer.llm import CausalLM
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.ssm import SSM
from specinfer.testing.automaton import Automaton
from specinfer.testing.law import exact_law
from specinfer.testing.step import answered, expansion
from specinfer.testing.toy import TableModel, a_request, table_model, write_tiny_model
from specinfer.token_tree import TokenTree
from specinfer.verify import draws_with_replacement, verify
from specinfer.warp import warp

VOCAB = 3
GRAMMAR = {"A": {0: "B", 1: "A"}, "B": {2: "A"}}  # 0 is followed by 2, and by nothing else
SAMPLING = SamplingParams(temperature=1.0)
WARPED = SamplingParams(temperature=0.7, top_k=2, top_p=0.9)
VERIFIERS = ["multi_step", "naive", "multi_step_wor", "traversal"]


def asked(params: SamplingParams) -> Request:
    request = a_request([0])
    request.params = params
    request.constraint = Constraint(Automaton(VOCAB, GRAMMAR))
    return request


def law_after(llm: TableModel, path: tuple[int, ...], params: SamplingParams) -> torch.Tensor:
    """Return what plain decoding draws from: the row masked where the path has led to."""
    state = Automaton(VOCAB, GRAMMAR)
    assert state.take(path) == len(path)
    row = llm(path).log().masked_fill(~torch.from_numpy(state.mask()), -torch.inf)
    return warp(row[None], params)[0]


def grow(ssm: TableModel, widths: tuple[int, ...], request: Request, draw: Callable) -> TokenTree:  # type: ignore[type-arg]
    """Expand one SSM's tree as Expansion does: its rows masked as the LLM's will be."""
    tree, frontier = TokenTree.rooted_at(0), range(1)
    for width in widths:
        before = len(tree)
        for node in frontier:
            path = tree.tokens_to(node)
            draw(tree, node, adjust(ssm(tuple(path)).log()[None], request, [path])[0], width)
        frontier = range(before, len(tree))
    return tree


def everything(widths: tuple[int, ...]) -> TokenTree:
    """Propose every token outright, at every depth: many of them break the grammar."""
    tree, frontier = TokenTree.rooted_at(0), range(1)
    for _ in widths:
        before = len(tree)
        for node, token in itertools.product(frontier, range(VOCAB)):
            tree.add(node, token)
        frontier = range(before, len(tree))
    return tree


def worst_error(
    widths: tuple[int, ...],
    params: SamplingParams,
    verifier: str,
    *,
    ssms: int = 0,
    points: bool = False,
    pruned: bool = True,
) -> float:
    llm, *drafters = (table_model(VOCAB, 7 + i) for i in range(1 + ssms))
    replacement = draws_with_replacement(verifier)  # type: ignore[arg-type]
    length = len(widths) + 1

    def program(choices: Choices) -> tuple[int, ...]:
        request = asked(params)
        draw = partial(draw_children, params=params, choices=choices, replacement=replacement)
        trees = [grow(ssm, widths, request, draw) for ssm in drafters]
        tree = merge([*trees, *([everything(widths)] if points else [])])
        tree = within_grammar(request, tree) if pruned else tree
        paths = [tree.tokens_to(node) for node in range(len(tree))]
        rows = torch.stack([llm(tuple(path)).log() for path in paths])
        lazily = adjust_lazily(rows, request, paths)
        accepted, following = verify(tree, lazily, params, choices, verifier)  # type: ignore[arg-type]
        out = [*(tree.tokens[node] for node in accepted), following]
        while len(out) < length and Automaton(VOCAB, GRAMMAR).take(out) == len(out):
            out.append(choices.draw(law_after(llm, tuple(out), params)))
        return tuple(out)

    got = exact_law(program)
    assert sum(got.values()) == pytest.approx(1, abs=1e-12)
    worst = 0.0
    for sequence in itertools.product(range(VOCAB), repeat=length):
        want = 1.0
        for place, token in enumerate(sequence):
            want *= float(law_after(llm, sequence[:place], params)[token]) if want else 0.0
        worst = max(worst, abs(got.get(sequence, 0.0) - want))
    return worst


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("params", [SAMPLING, WARPED], ids=["plain", "warped"])
@pytest.mark.parametrize(
    ("widths", "pool"),
    [
        ((2,), {"ssms": 1}),
        ((1, 1), {"ssms": 1}),
        ((1,), {"ssms": 2}),
        ((1, 1), {"points": True}),
        ((1, 1), {"points": True, "pruned": False}),
        ((1,), {"ssms": 1, "points": True}),
        ((1,), {"ssms": 1, "points": True, "pruned": False}),
    ],
)
def test_joint_law_is_the_llms_masked(widths, pool, params, verifier) -> None:
    assert worst_error(widths, params, verifier, **pool) < 1e-12


def test_one_mask_for_the_whole_tree_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake of engines whose state machine sees accepted tokens only."""
    sound = Constraint.mask
    monkeypatch.setattr(Constraint, "mask", lambda self, path: sound(self, path[:0]))
    assert worst_error((1,), SAMPLING, "naive", points=True) > 1e-3


# From here on: scheduler, drafters, caches and tree attention of the engine itself.

END = 0
PROMPT = (1, 2, 1)
# B may end or go on; D is complete, and nothing but the end may follow it.
ENDING = {"A": {1: "B", 2: "A"}, "B": {2: "C"}, "C": {1: "D", 2: "B"}, "D": {}}
Ending = tuple[tuple[int, ...], str | None]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("three-tokens")
    return [write_tiny_model(base / str(i), "llama", seed=i, vocab=VOCAB) for i in range(2)]


def plain_law(folder: Path, params: SamplingParams) -> dict[Ending, float]:
    """Return the law of decoding token by token, each row masked by the grammar."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    law: dict[Ending, float] = defaultdict(float)

    def go_on(tokens: tuple[int, ...], weight: float) -> None:
        state = Automaton(VOCAB, ENDING, "BD", END)
        state.take(tokens)
        if state.over or len(tokens) == params.max_new_tokens:
            law[tokens, "eos" if state.over else "length"] += weight
            return
        with torch.inference_mode():
            row = model(torch.tensor([[*PROMPT, *tokens]])).logits[0, -1]
        row = row.masked_fill(~torch.from_numpy(state.mask()), -torch.inf)
        chances = warp(row[None], params)[0].tolist()
        for token in state.mask().nonzero()[0].tolist():
            if token == END:
                law[tokens, "eos"] += weight * chances[token]
            else:
                go_on((*tokens, token), weight * chances[token])

    go_on((), 1.0)
    return law


@pytest.mark.parametrize(
    ("widths", "ssms", "lookup"),
    [((2,), 1, False), ((1, 1), 1, False), ((1,), 1, True), ((1, 1), 0, True), ((1,), 0, False)],
)
def test_the_engines_own_step_keeps_it_too(folders, widths, ssms, lookup) -> None:
    params = SamplingParams(temperature=0.8, max_new_tokens=4)
    llm, *pool = (CausalLM.load(f, "float32", torch.device("cpu")) for f in folders[: 1 + ssms])

    def program(choices: Choices) -> Ending:
        shape = Shape.of(TreeShape(widths))
        drafters = [
            expansion(SSM(ssm, None), shape, vocab=VOCAB, replacement=False) for ssm in pool
        ]
        guessers = [PromptLookup(), Forced()] if lookup else []
        drafting = Pool(drafters, guessers, nodes=4, depth=len(widths))
        grammar = Constraint(Automaton(VOCAB, ENDING, "BD", END))
        request = answered(
            llm, drafting, PROMPT, params, choices, constraint=grammar, eos=frozenset({END})
        )
        ended_by_token = request.finish_reason == "eos" and not request.complete
        assert request.tally.emitted == request.emitted + ended_by_token
        return tuple(request.tokens[len(PROMPT) :]), request.finish_reason

    got, want = exact_law(program), plain_law(folders[0], params)
    for ending in got.keys() | want.keys():
        assert got.get(ending, 0.0) == pytest.approx(want.get(ending, 0.0), abs=2e-6)
