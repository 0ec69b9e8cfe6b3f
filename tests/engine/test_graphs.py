"""Captured passes: padded to a bucket they say what unpadded ones say, replay after replay."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.errors import ConfigError
from specinfer.frame import FrameShape, frame_bytes, pack
from specinfer.graphs import Buckets, CudaCapture, Graphs, Run
from specinfer.kv_cache import KVCache
from specinfer.llm import CausalLM
from specinfer.testing.ask import Asker
from specinfer.tree_attention import ForwardPlan, Segment, plan
from specinfer.waits import what_waits
from specinfer_kernels.testing import random_tree


def eagerly(run: Run) -> Run:
    """Stand in for a GPU: a replay runs the pass again on the same buffers."""
    run()
    return run


@pytest.fixture
def llm(tiny: dict[str, Path]) -> CausalLM:
    return CausalLM.load(tiny["llama"], "float32", torch.device("cpu"))


def graphed(llm: CausalLM, cache: KVCache, most: int = 64) -> Graphs:
    buckets = Buckets.up_to(segments=6, pages=cache.pages, page_size=cache.page_size)
    return Graphs(llm, cache, buckets, eagerly, most)


def batch(cache: KVCache, sizes: list[int], generator: torch.Generator) -> list[Segment]:
    """Return random trees behind contexts of random length, whose entries are random too."""
    segments = []
    for size in sizes:
        sequence = cache.open([])
        length = int(torch.randint(0, 40, (1,), generator=generator))
        cache.reserve(sequence, length + size)
        sequence.tokens = [1] * length
        tokens = torch.randint(97, (size,), generator=generator).tolist()
        wanted = sorted({0, size // 2, size - 1})
        segments.append(Segment(sequence, tokens, random_tree(size, generator), wanted))
    return segments


def test_the_smallest_bucket_that_holds_a_plan_is_taken(llm: CausalLM) -> None:
    cache = llm.new_cache(tokens=4096, page_size=16)
    buckets = Buckets.up_to(segments=32, pages=cache.pages, page_size=16)
    generator = torch.Generator().manual_seed(0)
    shape = buckets.fit(plan(cache, batch(cache, [5, 9, 3], generator)))
    assert shape is not None
    assert (shape.rows, shape.segments, shape.longest, shape.span) == (24, 4, 16, 1024)
    assert buckets.fit(plan(cache, batch(cache, [257], generator))) is None
    assert buckets.fit(plan(cache, batch(cache, [1] * 33, generator))) is None


def test_usual_buckets_are_those_that_decoding_meets(llm: CausalLM) -> None:
    """Without drafts, and with full trees, for batches of every size."""
    cache = llm.new_cache(tokens=4096, page_size=16)
    buckets = Buckets.up_to(segments=8, pages=cache.pages, page_size=16)
    usual = list(buckets.usual(21))
    assert len(set(usual)) == len(usual) < 40
    generator = torch.Generator().manual_seed(0)
    for requests in range(1, 9):
        for rows in (1, 21):
            segments = batch(cache, [rows] * requests, generator)
            assert buckets.fit(plan(cache, segments)) in usual, (requests, rows)


def test_every_array_of_a_frame_begins_where_triton_expects() -> None:
    shape = FrameShape(
        rows=3, segments=2, wanted=1, pages=5, longest=2, span=80, page_size=16, padded=True
    )
    assert frame_bytes(shape) == 9 * 64


def test_padded_passes_equal_unpadded_ones_in_a_storm_of_shapes(llm: CausalLM) -> None:
    """Rows, cache entries and earlier results: nothing leaks from one replay to the next."""
    generator = torch.Generator().manual_seed(3)
    cache = llm.new_cache(tokens=2048, page_size=4)
    cache.kv.copy_(torch.randn(cache.kv.shape, generator=generator))
    graphs = graphed(llm, cache)
    kept: list[tuple[Tensor, Tensor]] = []
    for _ in range(40):
        count = int(torch.randint(1, 7, (1,), generator=generator))
        sizes = torch.randint(1, 30, (count,), generator=generator).tolist()
        segments = batch(cache, sizes, generator)
        laid_out = plan(cache, segments)
        before = cache.kv.clone()
        expected = llm.forward(laid_out)
        written = cache.kv.clone()
        cache.kv.copy_(before)
        got = replayed(graphs, laid_out)
        kept.append((got, got.clone()))
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(cache.kv[:, :, :-1], written[:, :, :-1])
        untouched = torch.ones(cache.spare_slot, dtype=torch.bool)
        untouched[list(laid_out.slots)] = False
        assert torch.equal(cache.kv[:, :, :-1][:, :, untouched], before[:, :, :-1][:, :, untouched])
        for segment in segments:
            cache.release(segment.sequence)
    assert all(torch.equal(result, copy) for result, copy in kept)
    assert len(graphs) > 10


@torch.inference_mode()
def replayed(graphs: Graphs, laid_out: ForwardPlan) -> Tensor:
    rows = graphs.forward(laid_out)
    assert rows is not None
    return rows


def test_what_padding_holds_is_never_read(llm: CausalLM) -> None:
    generator = torch.Generator().manual_seed(5)
    cache = llm.new_cache(tokens=256, page_size=4)
    laid_out = plan(cache, batch(cache, [5, 3], generator))
    graphs = graphed(llm, cache)
    clean = replayed(graphs, laid_out)
    cache.kv[:, :, cache.spare_slot] = torch.nan
    unused = set(range(cache.pages)) - {page for pages in laid_out.pages for page in pages}
    for page in unused:
        cache.kv[:, :, page * 4 : page * 4 + 4] = torch.nan
    assert torch.equal(replayed(graphs, laid_out), clean)


def test_the_graph_longest_unused_makes_room(llm: CausalLM) -> None:
    generator = torch.Generator().manual_seed(0)
    cache = llm.new_cache(tokens=512, page_size=4)
    captured: list[Run] = []

    def count(run: Run) -> Run:
        captured.append(run)
        return run

    buckets = Buckets.up_to(segments=1, pages=cache.pages, page_size=4)
    graphs = Graphs(llm, cache, buckets, count, most=2)
    for size in (1, 2, 1, 4, 1, 2):  # 4 displaces 2, which comes back in place of 4
        replayed(graphs, plan(cache, batch(cache, [size], generator)))
    assert len(captured) == 4
    assert len(graphs) == 2


def test_a_pass_that_no_bucket_holds_runs_eagerly(llm: CausalLM) -> None:
    generator = torch.Generator().manual_seed(0)
    cache = llm.new_cache(tokens=1024, page_size=4)
    llm.graphs = graphed(llm, cache)
    long = plan(cache, batch(cache, [300], generator))
    assert llm.graphs.forward(long) is None
    assert llm.forward(long).shape == (3, 97)
    other = llm.new_cache(tokens=64, page_size=4)
    assert llm.forward(plan(other, batch(other, [2], generator))).shape == (2, 97)
    assert len(llm.graphs) == 0


def test_a_shape_that_cannot_be_captured_runs_eagerly(
    llm: CausalLM, caplog: pytest.LogCaptureFixture
) -> None:
    """It would have ended the engine, with all requests; what was captured before is replayed."""
    generator = torch.Generator().manual_seed(0)
    cache = llm.new_cache(tokens=512, page_size=4)
    room = [1]

    def short(run: Run) -> Run:
        if not room:
            raise RuntimeError("CUDA out of memory")
        room.pop()
        return eagerly(run)

    llm.graphs = Graphs(llm, cache, Buckets.up_to(segments=1, pages=128, page_size=4), short)
    for size in (1, 9, 17, 1):
        laid_out = plan(cache, batch(cache, [size], generator))
        with torch.inference_mode():
            expected = llm.run(llm._framed(laid_out), cache)
        torch.testing.assert_close(llm.forward(laid_out), expected)
    assert len(llm.graphs) == 1
    assert caplog.text.count("no further CUDA graphs are captured: CUDA out of memory") == 1


def test_warming_captures_before_the_first_request(
    llm: CausalLM, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    cache = llm.new_cache(tokens=1024, page_size=4)
    graphs = graphed(llm, cache)
    graphs.warm(8)
    assert len(graphs) > 3
    assert f"captured {len(graphs)} of {len(graphs)} CUDA graphs" in caplog.text
    assert not cache.kv[:, :, :-1].any()


@pytest.mark.parametrize("settings", [{"lookup": False}, {"ssms": True}, {"adaptive": True}])
def test_greedy_answers_are_those_without_graphs(
    tiny: dict[str, Path], settings: dict[str, object]
) -> None:
    """LLM and SSM replay, requests of all lengths join and leave, long prompts run eagerly."""
    ssms = (tiny["ssm"],) if settings.get("ssms") else ()
    config = EngineConfig(
        model=tiny["llama"],
        dtype="float32",
        max_batch=6,
        cache_tokens=2048,
        page_size=4,
        **{"adaptive": False, **settings, "ssms": ssms},  # type: ignore[arg-type]
    )
    answers = []
    for graphs in (False, True):
        engine = Engine.load(config)
        if graphs:
            speculator = engine._scheduler._speculator
            speculator.llm.graphs = graphed(speculator.llm, speculator.cache)
            for drafter in speculator.pool.drafters[: len(ssms)]:
                drafter.ssm.graphs = graphed(drafter.ssm, drafter.cache)
        asker = Asker(engine)
        prompts = [[1 + (7 * i + j * (i + 3)) % 96 for j in range(1 + 29 * i)] for i in range(8)]
        waiting = [
            asker.submit(prompt, max_new_tokens=10 + 3 * i, ignore_eos=True)[1]
            for i, prompt in enumerate(prompts)
        ]
        answers.append([asker.gather(deltas).tokens for deltas in waiting])
        engine.close()
        if graphs:
            assert len(speculator.llm.graphs) > 2
    assert answers[0] == answers[1]


def test_a_model_that_looks_at_its_rows_on_the_host_is_found_out(llm: CausalLM) -> None:
    cache = llm.new_cache(tokens=16, page_size=4)

    class Curious:
        vocab = 97

        def run(self, frame, cache):  # type: ignore[no-untyped-def]
            return torch.zeros(int(frame.positions.max()) + 1, 97)

    assert what_waits(Curious(), cache) == {"item"}


def test_graphs_that_are_insisted_on_need_a_card(tiny: dict[str, Path]) -> None:
    config = EngineConfig(model=tiny["llama"], device="cpu", cuda_graphs="on")
    with pytest.raises(ConfigError, match="cuda_graphs: on, but llama is on cpu"):
        Engine.load(config)


def test_capturing_warms_up_aside_and_keeps_other_threads_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a GPU would be asked, in order; the rest of torch.cuda needs a card."""
    said: list[object] = []
    stream = SimpleNamespace(wait_stream=lambda other: said.append("wait"))
    graph = SimpleNamespace(replay=lambda: said.append("replay"))

    def capturing(own: object, pool: str, capture_error_mode: str) -> nullcontext[None]:
        said.extend(["capture", pool, capture_error_mode])
        return nullcontext()

    fakes = {
        "graph_pool_handle": lambda: "pool",
        "current_stream": lambda: stream,
        "Stream": lambda: stream,
        "stream": lambda own: nullcontext(),
        "CUDAGraph": lambda: graph,
        "graph": capturing,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    replay = CudaCapture()(lambda: said.append("run"))
    replay()
    assert said == [
        "wait", "run", "run", "wait", "capture", "pool", "thread_local", "run", "replay"
    ]  # fmt: skip


def test_a_frame_larger_than_its_plan_is_filled_with_padding(llm: CausalLM) -> None:
    cache = llm.new_cache(tokens=64, page_size=4)
    laid_out = plan(cache, batch(cache, [3], torch.Generator().manual_seed(1)))
    shape = Buckets.up_to(segments=4, pages=cache.pages, page_size=4).fit(laid_out)
    assert shape is not None
    slots = pack(laid_out, shape)[128:160].view(torch.int64).tolist()
    assert slots == [*laid_out.slots, cache.spare_slot]
