"""In C a row's logits are the same bits whatever tree, batch or chunk it is computed in."""

import functools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.frame import Frame, FrameShape, pack
from specinfer.kv_cache import CachedSequence, Commit, KVCache
from specinfer.lean import LeanLM, load_llm
from specinfer.lean.native import NativeDecoder
from specinfer.testing.ask import Asker
from specinfer.testing.toy import write_tiny_model
from specinfer.tree_attention import Segment, chain, plan

CPU = torch.device("cpu")
KINDS: dict[str, dict[str, Any]] = {
    "int8": {"dtype": "auto", "quantization": "int8"},
    "bf16": {"dtype": "bfloat16", "quantization": "none"},
}


@pytest.fixture(scope="module", params=KINDS)
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "llama", "llama")


@pytest.fixture(scope="module")
def llm(folder: Path, settings: dict[str, Any]) -> LeanLM:
    llm = load_llm(folder, device=CPU, **settings)
    if not isinstance(llm, LeanLM) or not isinstance(llm.decoder, NativeDecoder):
        pytest.skip("no such AVX-512 or no C compiler: run by torch's operators")
    return llm


def read(llm: LeanLM, cache: KVCache, tokens: Sequence[int], *, chunk: int) -> CachedSequence:
    """Prefill a sequence, so many tokens a pass."""
    sequence = cache.open([])
    for start in range(0, len(tokens), chunk):
        part = tokens[start : start + chunk]
        cache.reserve(sequence, len(part))
        llm.forward(plan(cache, [chain(sequence, part, wanted=False)]))
        cache.commit([Commit(sequence, range(len(part)), part)])
    return sequence


def one_by_one(llm: LeanLM, prompt: Sequence[int], path: Sequence[int]) -> Tensor:
    """Return the rows of plain decoding along a path."""
    cache = llm.new_cache(tokens=256, page_size=16)
    sequence = read(llm, cache, prompt, chunk=1)
    rows = []
    for token in path:
        cache.reserve(sequence, 1)
        rows.append(llm.forward(plan(cache, [chain(sequence, [token], wanted=True)])))
        cache.commit([Commit(sequence, [0], [token])])
    return torch.cat(rows)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_trees_rows_are_those_of_plain_decoding(llm: LeanLM, seed: int, threads: int) -> None:
    """Three trees over different contexts in one pass, prefilled in different chunks."""
    check_trees(llm, seed, threads)


@pytest.mark.parametrize("window", [1, 7, 16, 40])
def test_also_where_a_window_hides_what_is_far(
    folder: Path, llm: LeanLM, settings: dict[str, Any], tmp_path: Path, window: int
) -> None:
    """The window's edge in the context, among a tree's own rows, within and between registers."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "mistral", "sliding_window": window}
    (tmp_path / "config.json").write_text(json.dumps(config))
    windowed = load_llm(tmp_path, device=CPU, **settings)
    assert isinstance(windowed, LeanLM) and isinstance(windowed.decoder, NativeDecoder)
    assert not torch.equal(*(one_by_one(each, [1, 2] * window, [3]) for each in (llm, windowed)))
    for seed in range(2):
        check_trees(windowed, seed, threads=2)


def check_trees(llm: LeanLM, seed: int, threads: int) -> None:
    draw = random.Random(seed)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    cache = llm.new_cache(tokens=1024, page_size=16)
    prompts = [[draw.randrange(97) for _ in range(draw.randrange(1, 70))] for _ in range(3)]
    segments = []
    for prompt in prompts:
        size = draw.choice([1, 5, 8, 17, 30])
        tokens = [draw.randrange(97) for _ in range(size)]
        parents = [draw.randrange(-1, row) for row in range(size)]
        sequence = read(llm, cache, prompt, chunk=draw.choice([3, 16, 64]))
        cache.reserve(sequence, size)
        segments.append(Segment(sequence, tokens, parents, range(size)))
    rows = llm.forward(plan(cache, segments))
    torch.set_num_threads(before)
    shares = torch.split(rows, [len(segment) for segment in segments])
    for prompt, segment, own in zip(prompts, segments, shares, strict=True):
        for leaf in draw.sample(range(len(segment)), min(4, len(segment))):
            nodes = path_to(segment.parents, leaf)
            plain = one_by_one(llm, prompt, [segment.tokens[node] for node in nodes])
            assert torch.equal(own[nodes], plain)


def test_normed_rows_are_what_the_head_reads(llm: LeanLM) -> None:
    """In any order of the wanted rows; and asking for them changes no bit of the logits."""
    decoder = llm.decoder
    assert isinstance(decoder, NativeDecoder)
    cache = llm.new_cache(tokens=256, page_size=16)
    sequence = read(llm, cache, range(1, 40), chunk=16)
    cache.reserve(sequence, 5)
    made = plan(cache, [Segment(sequence, [7, 8, 9, 3, 4], [-1, 0, 0, 2, 1], [4, 0, 2])])
    frame = Frame.over(pack(made, shape := FrameShape.exactly(made)), shape)
    normed = torch.full((3, decoder.embedding.shape[1]), torch.nan)
    logits = decoder(frame, cache, normed)
    torch.testing.assert_close(decoder.head(normed), logits, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits, decoder(frame, cache))


def path_to(parents: Sequence[int], node: int) -> list[int]:
    path: list[int] = []
    while node >= 0:
        path.insert(0, node)
        node = parents[node]
    return path


def test_rows_differ_where_the_path_does(llm: LeanLM) -> None:
    """The comparison above would see a single token that is not the same."""
    one, other = (one_by_one(llm, [5, 6, first], [9]) for first in (7, 8))
    assert not torch.equal(one, other)


def answers(folder: Path, prompts: Sequence[Sequence[int]], tokens: int, **settings: Any):
    engine = Engine.load(EngineConfig(model=folder, **settings))
    asker = Asker(engine)
    waiting = [asker.submit(list(prompt), max_new_tokens=tokens)[1] for prompt in prompts]
    found = [asker.gather(deltas).tokens for deltas in waiting]
    engine.close()
    return found


def test_greedy_trees_give_plain_decodings_tokens(
    llm: LeanLM, folder: Path, settings: dict[str, Any]
) -> None:
    ask = functools.partial(answers, folder, **settings)
    draw = random.Random(1)
    prompts = [[draw.randrange(1, 97) for _ in range(draw.randrange(1, 40))] for _ in range(40)]
    plain = ask(prompts, 24, lookup=False, max_batch=1)
    assert plain == ask(prompts, 24, adaptive=False, max_batch=8)
    assert plain == ask(prompts, 24, ssms=(folder,), adaptive=False, max_batch=3)


@pytest.mark.slow
def test_greedy_trees_give_the_real_models_tokens(llm: LeanLM, settings: dict[str, Any]) -> None:
    from specinfer.model_store import resolve_model
    from specinfer.tokenizer import Tokenizer

    model = resolve_model("default")
    encode = Tokenizer(model).encode_chat
    files = Path(__file__).parents[2].joinpath("benchmarks", "prompts").glob("*.jsonl")
    lines = [line for file in sorted(files) for line in file.read_text().splitlines()]
    texts = [json.loads(line)["prompt"] for line in lines]
    prompts = [encode([{"role": "user", "content": text}]) for text in texts[::2]]
    plain = answers(model, prompts, 24, lookup=False, max_batch=1, **settings)
    assert plain == answers(model, prompts, 24, adaptive=False, max_batch=4, **settings)
