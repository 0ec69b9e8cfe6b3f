"""The engine on tiny random models: lossless whatever drafts, and fair to every request."""

import threading
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from specinfer.config import TreeShape
from specinfer.engine import Engine
from specinfer.errors import (
    ContextLengthError,
    EngineDeadError,
    ModelFolderError,
    ParameterError,
    QueueFullError,
)
from specinfer.testing.toy import TINY, write_tiny_model, write_tokenizer

SHAPES = ["1", "4", "1,1,1", "2,2", "1,1,3,1", "3,2,1", "2,2,2"]
PROMPTS = ["Hello world", "abcabcabcabc", "x", "to be or not to be, to be"]


def plain(folder: Path, prompt: list[int], count: int) -> list[int]:
    """Decode with transformers alone, one token a pass."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("kind", TINY)
def test_greedy_output_is_plain_decodings(ask, tiny, kind) -> None:
    for settings in (
        {"lookup": False},
        {},
        {"ssms": (tiny["ssm"],)},
        {"ssms": (tiny[kind],), "tree": TreeShape((2, 1, 2))},
        {"ssms": (tiny[kind], tiny["ssm"]), "tree": TreeShape((2, 2)), "lookup": False},
    ):
        asked = ask(kind, **settings)
        for prompt in PROMPTS:
            ids = asked.engine.encode(prompt)
            got = asked(ids, max_new_tokens=24, ignore_eos=True)
            assert got.tokens == plain(tiny[kind], ids, 24), (settings, prompt)


def test_adaptive_trees_are_lossless_in_a_batch(ask, tiny) -> None:
    asked = ask(ssms=(tiny["ssm"],), adaptive=True, max_batch=4)
    prompts = [asked.engine.encode(p) for p in PROMPTS]
    for _ in range(2):
        waiting = [asked.submit(ids, max_new_tokens=24, ignore_eos=True)[1] for ids in prompts]
        for ids, deltas in zip(prompts, waiting, strict=True):
            assert asked.gather(deltas).tokens == plain(tiny["llama"], ids, 24)


def test_a_seeded_sampled_answer_repeats_itself_with_adaptive_ssms(ask, tiny) -> None:
    asked = ask(ssms=(tiny["ssm"],), adaptive=True, lookup=False)
    answers = [
        asked("abc", max_new_tokens=30, temperature=1.0, seed=5, ignore_eos=True).tokens
        for _ in range(3)
    ]
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_tree_shape_is_legal_and_lossless(ask, tiny, shape) -> None:
    asked = ask(ssms=(tiny["llama"], tiny["ssm"]), tree=TreeShape.parse(shape))
    ids = asked.engine.encode("the cat sat")
    got = asked(ids, max_new_tokens=30, ignore_eos=True)
    assert got.tokens == plain(tiny["llama"], ids, 30)
    assert got.last.stats.tokens_per_step > 1.5  # one SSM is the LLM itself


def test_three_identical_ssms_draft_the_tree_of_one(ask, tiny) -> None:
    one = ask(ssms=(tiny["ssm"],), lookup=False)("abc", max_new_tokens=20, ignore_eos=True)
    three = ask(ssms=(tiny["ssm"],) * 3, lookup=False)("abc", max_new_tokens=20, ignore_eos=True)
    assert three.last.stats.tree_nodes == one.last.stats.tree_nodes
    assert three.last.stats.drafted == one.last.stats.drafted


def test_an_ssm_that_is_the_llm_is_always_accepted(ask, tiny) -> None:
    asked = ask(ssms=(tiny["llama"],), tree=TreeShape((1, 1, 1)), lookup=False)
    for temperature in (0.0, 1.0):
        got = asked("abc", max_new_tokens=40, ignore_eos=True, temperature=temperature, seed=1)
        assert got.last.stats.tokens_per_step == 4
        assert got.last.stats.accepted == got.last.stats.drafted


def test_exactly_max_new_tokens_come_out(ask, tiny) -> None:
    asked = ask(ssms=(tiny["llama"],))
    for count in (1, 2, 3, 7, 20):
        got = asked("abc", max_new_tokens=count, ignore_eos=True)
        assert len(got.tokens) == count
        assert got.last.finish_reason == "length"


def test_answers_end_at_the_context_limit(ask, tiny) -> None:
    asked = ask(ssms=(tiny["llama"],), max_context=40)
    ids = asked.engine.encode("a" * 30)
    got = asked(ids, max_new_tokens=500, ignore_eos=True)
    assert len(ids) + len(got.tokens) == 40
    assert got.last.finish_reason == "length"


def test_eos_in_mid_path_ends_the_answer(ask, tiny) -> None:
    """The tiny models end on token 0; what follows it in an accepted path must not show."""
    asked = ask(ssms=(tiny["llama"],))
    ids = asked.engine.encode("Hello world")
    free = asked(ids, max_new_tokens=60, ignore_eos=True).tokens
    ended = asked(ids, max_new_tokens=60)
    if 0 in free:
        assert ended.tokens == free[: free.index(0)]
        assert ended.last.finish_reason == "eos"
    else:
        assert ended.tokens == free


def test_a_stop_string_inside_an_accepted_run_is_found(ask, tiny) -> None:
    asked = ask(ssms=(tiny["llama"],), tree=TreeShape((1, 1, 1, 1)))
    ids = asked.engine.encode("Hello world")
    free = asked(ids, max_new_tokens=40, ignore_eos=True)
    for start in range(0, 30):
        stop = free.text[start : start + 3]
        got = asked(ids, max_new_tokens=40, ignore_eos=True, stop=(stop,))
        cut = free.text.index(stop)
        assert got.text == free.text[:cut]
        assert got.tokens == free.tokens[:cut]
        assert got.last.finish_reason == "stop"


def test_a_seed_gives_the_same_answer_whatever_its_batch_mates(ask, tiny) -> None:
    for settings in ({}, {"ssms": (tiny["ssm"],), "lookup": False}):
        asked = ask(**settings)
        alone = asked("abc", max_new_tokens=20, temperature=1.0, seed=7, ignore_eos=True)
        crowd = [
            asked.submit(p, max_new_tokens=20, temperature=1.0, seed=i, ignore_eos=True)[1]
            for i, p in enumerate(PROMPTS)
        ]
        among = asked.submit("abc", max_new_tokens=20, temperature=1.0, seed=7, ignore_eos=True)[1]
        assert asked.gather(among).tokens == alone.tokens
        for deltas in crowd:
            asked.gather(deltas)


def test_point_mass_drafts_do_not_change_a_seeded_answer(ask) -> None:
    with_drafts = ask()("abcabcabc", max_new_tokens=30, temperature=1.0, seed=3)
    without = ask(lookup=False)("abcabcabc", max_new_tokens=30, temperature=1.0, seed=3)
    assert with_drafts.tokens == without.tokens


def test_a_batch_answers_like_each_request_alone(ask, tiny) -> None:
    asked = ask(ssms=(tiny["ssm"],), max_batch=3, prefill_rows=16)
    prompts = [asked.engine.encode(p * n) for n in (1, 4) for p in PROMPTS]
    waiting = [asked.submit(ids, max_new_tokens=16, ignore_eos=True)[1] for ids in prompts]
    for ids, deltas in zip(prompts, waiting, strict=True):
        assert asked.gather(deltas).tokens == plain(tiny["llama"], ids, 16)


def test_requests_that_outgrow_the_cache_step_back_and_lose_nothing(ask, tiny) -> None:
    asked = ask(ssms=(tiny["ssm"],), cache_tokens=96, page_size=4)
    prompts = [asked.engine.encode(p) for p in ("abcdefgh", "ijklmnop", "qrstuvwx", "yzABCDEF")]
    waiting = [asked.submit(ids, max_new_tokens=60, ignore_eos=True)[1] for ids in prompts]
    for ids, deltas in zip(prompts, waiting, strict=True):
        assert asked.gather(deltas).tokens == plain(tiny["llama"], ids, 60)


def test_an_ssm_with_a_shorter_context_sits_out(ask, tiny, tmp_path) -> None:
    short = write_tiny_model(tmp_path / "short", "llama", context=32)
    asked = ask(ssms=(short,), lookup=False)
    ids = asked.engine.encode("abc")
    got = asked(ids, max_new_tokens=60, ignore_eos=True)
    assert got.tokens == plain(tiny["llama"], ids, 60)


def test_cancelling_frees_everything_within_a_step(ask) -> None:
    asked = ask()
    handle, deltas = asked.submit("abc", max_new_tokens=200, ignore_eos=True)
    first = deltas.get(timeout=60)
    handle.cancel()
    assert first.finish_reason is None
    assert asked.gather(deltas).last.finish_reason == "cancelled"
    assert asked.engine.cache.used == 0


def test_a_sink_that_fails_gives_up_its_own_request_only(ask) -> None:
    asked = ask()

    def broken(delta: object) -> None:
        raise RuntimeError("receiver is gone")

    from specinfer.request import SamplingParams

    asked.engine.submit([1, 2, 3], SamplingParams(max_new_tokens=200, ignore_eos=True), broken)
    assert len(asked("abc", max_new_tokens=10, ignore_eos=True).tokens) == 10
    assert asked.engine.alive


def test_a_repeated_prompt_shares_the_pages_of_the_first(ask) -> None:
    asked = ask(page_size=4, lookup=False)
    ids = asked.engine.encode("a long enough beginning, shared by both")
    first = asked(ids, max_new_tokens=8, ignore_eos=True)
    rows: list[int] = []
    forward = asked.engine._scheduler._speculator.llm.forward

    def counted(plan):  # type: ignore[no-untyped-def]
        rows.append(len(plan.tokens))
        return forward(plan)

    asked.engine._scheduler._speculator.llm.forward = counted  # type: ignore[method-assign]
    second = asked(ids, max_new_tokens=8, ignore_eos=True)
    assert second.tokens == first.tokens
    assert rows[0] == 3  # 39 tokens, of which nine pages of four are known


def test_bad_prompts_are_refused_with_both_numbers(ask) -> None:
    asked = ask(max_context=32)
    with pytest.raises(ContextLengthError, match="the prompt has 32 tokens.*holds 32"):
        asked([1] * 32)
    with pytest.raises(ParameterError, match="prompt: must not be empty"):
        asked([])


def test_token_ids_outside_the_vocabulary_are_refused(ask) -> None:
    """An id beyond the embedding would take the whole batch down."""
    asked = ask()
    with pytest.raises(ParameterError, match="prompt: token 97 is outside"):
        asked([1, 97])
    with pytest.raises(ParameterError, match="prompt: token -1 is outside"):
        asked([-1])
    with pytest.raises(ParameterError, match="logit_bias: token 97 is outside"):
        asked("abc", logit_bias={97: 1.0})
    with pytest.raises(ParameterError, match="stop_token_ids: token 500 is outside"):
        asked("abc", stop_token_ids=(500,))


def test_the_queue_is_bounded(ask) -> None:
    asked = ask(max_batch=1, queue_limit=2)
    gate = threading.Event()
    forward = asked.engine._scheduler._speculator.llm.forward

    def held(plan):  # type: ignore[no-untyped-def]
        gate.wait(30)
        return forward(plan)

    asked.engine._scheduler._speculator.llm.forward = held  # type: ignore[method-assign]
    waiting = []
    with pytest.raises(QueueFullError, match="2 requests are already waiting"):
        for _ in range(4):
            waiting.append(asked.submit("abc", max_new_tokens=2, ignore_eos=True)[1])
    gate.set()
    for deltas in waiting:
        assert len(asked.gather(deltas).tokens) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_forward_ends_every_request_and_the_engine(ask) -> None:
    asked = ask()

    def broken(plan):  # type: ignore[no-untyped-def]
        raise RuntimeError("device lost")

    asked.engine._scheduler._speculator.llm.forward = broken  # type: ignore[method-assign]
    _, deltas = asked.submit("abc", max_new_tokens=5)
    last = asked.gather(deltas).last
    assert last.finish_reason == "error"
    assert "device lost" in (last.error or "")
    asked.engine._thread.join(10)
    assert not asked.engine.alive
    with pytest.raises(EngineDeadError, match="device lost"):
        asked("abc")


def test_an_ssm_must_speak_the_llms_tokens(ask, tiny, tmp_path) -> None:
    other = write_tiny_model(tmp_path / "other", "llama", vocab=80)
    with pytest.raises(ModelFolderError, match="its tokenizer is not the LLM's"):
        ask(ssms=(other,))
    padded = write_tiny_model(tmp_path / "padded", "llama", vocab=128)
    write_tokenizer(padded, 97)
    assert ask(ssms=(padded,))("abc", max_new_tokens=5, ignore_eos=True).tokens


def test_a_folder_without_a_model_is_one_clear_line(tmp_path) -> None:
    from specinfer.config import EngineConfig

    with pytest.raises(ModelFolderError, match="not a model folder .no config.json."):
        Engine.load(EngineConfig(model=tmp_path))
