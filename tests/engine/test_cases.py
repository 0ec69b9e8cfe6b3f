"""Cases that users of other engines met, on tiny models; docs/cases.md lists them all."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from specinfer.config import EngineConfig, TreeShape
from specinfer.draft.expansion import Expansion
from specinfer.draft.planner import Planner, cut_short
from specinfer.draft.ranks import Profile
from specinfer.engine import Engine
from specinfer.errors import ModelFolderError
from specinfer.lean import load_llm
from specinfer.request import TokenLogprob
from specinfer.sampling import SamplingParams
from specinfer.testing.ask import Asker
from specinfer.testing.toy import a_request, write_tokenizer
from specinfer.token_tree import ROOT, TokenTree
from specinfer.verify import verify_multi_step, verify_traversal

CONTROLS: list[dict[str, object]] = [
    {"temperature": 0.4},
    {"top_k": 3},
    {"top_p": 0.6},
    {"min_p": 0.1},
    {"typical_p": 0.5},
    {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": -0.3},
    {"logit_bias": {5: 4.0, 40: -100.0}},
    {"min_new_tokens": 20},
]


@pytest.fixture
def own_draft(ask, tiny):
    """Return an engine whose SSM is the LLM itself, so that every draft ought to stand."""
    return ask(ssms=(tiny["llama"],), tree=TreeShape((1, 1, 1)), lookup=False)


def logprobs(asker: Asker, **params: object) -> list[TokenLogprob]:
    """Return what the LLM itself said of each token of an answer."""
    deltas, found = asker.submit("abc", **params)[1], list[TokenLogprob]()
    while True:
        delta = deltas.get(timeout=60)
        found += delta.logprobs
        if delta.finish_reason is not None:
            return found


@pytest.mark.parametrize("controls", CONTROLS, ids=lambda c: next(iter(c)))
def test_drafts_are_warped_as_the_llm_is(own_draft, controls) -> None:
    """Other engines sampled drafts at another temperature or top-p than they verified with, which
    costs acceptance and, where the ratio is wrong as well, the distribution (vllm#9834)."""
    asked = {"temperature": 1.0, "seed": 3, "max_new_tokens": 28, "ignore_eos": True} | controls
    stats = own_draft("abc", **asked).last.stats
    assert stats.accepted == stats.drafted == 21


@pytest.mark.parametrize("seed", range(3))
def test_truncation_reaches_drafted_tokens_and_the_bonus(own_draft, seed) -> None:
    """min_p and logit_bias were refused or applied to the bonus token alone (vllm#42744); the
    bonus after full acceptance was drawn from unwarped logits (EAGLE's utils.py)."""
    common = {"temperature": 1.0, "seed": seed, "max_new_tokens": 40, "ignore_eos": True}
    for told in logprobs(own_draft, top_k=3, logprobs=3, **common):
        assert told.token in dict(told.top)
    for told in logprobs(own_draft, min_p=0.2, logprobs=1, **common):
        assert told.logprob >= told.top[0][1] + math.log(0.2) - 1e-4
    assert 7 not in own_draft("abc", logit_bias={7: -100.0}, **common).tokens


def test_top_k_of_one_is_greedy_at_any_temperature(own_draft) -> None:
    """So no token of a step, the bonus included, escapes the warping (EAGLE's utils.py)."""
    greedy = own_draft("abc", max_new_tokens=40, ignore_eos=True)
    one = own_draft("abc", max_new_tokens=40, ignore_eos=True, temperature=5.0, top_k=1)
    assert one.tokens == greedy.tokens


@pytest.mark.parametrize("stops", [{"min_new_tokens": 25}, {"ignore_eos": True}])
def test_minimum_and_ignored_ends_act_on_trees_as_on_plain_decoding(ask, tiny, stops) -> None:
    """With speculation, min_tokens and ignore_eos looked at whole steps or at the root only."""
    tree = ask(ssms=(tiny["llama"],), tree=TreeShape((2, 1, 1)))
    plain = ask(lookup=False)
    biased = {"logit_bias": {0: 25.0}, "max_new_tokens": 30} | stops  # it wants to end at once
    got, expected = tree("abc", **biased), plain("abc", **biased)
    assert got.tokens == expected.tokens
    assert len(got.tokens) >= 25
    assert got.last.finish_reason == expected.last.finish_reason


def test_an_answer_ends_on_the_models_own_end_token(ask, tiny, tmp_path) -> None:
    """Sequoia's code ends on ids 0 and 2 whatever the model says; here the end is in mid-path."""
    free = ask(ssms=(tiny["llama"],))("abc", max_new_tokens=30, ignore_eos=True).tokens
    end = next(token for place, token in enumerate(free) if place > 4 and token not in {0, 2})
    folder = Path(shutil.copytree(tiny["llama"], tmp_path / "other-end"))
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"eos_token_id": end}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    tiny["other-end"] = folder
    got = ask("other-end", ssms=(tiny["llama"],))("abc", max_new_tokens=30)
    del tiny["other-end"]
    assert got.tokens == free[: free.index(end)]
    assert got.last.finish_reason == "eos"


@pytest.mark.parametrize("kind", ["rwkv", "bloom", "mamba", "lfm2"])
def test_models_that_cannot_take_back_rejected_tokens_are_refused(tmp_path, kind) -> None:
    """A recurrent state cannot be rewound to the accepted path; speculation over it corrupted
    answers (mlx-lm#1109).  Classes with an attention of their own would ignore tree and cache."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    mixed = {"layer_types": ["conv", "full_attention"]} if kind == "lfm2" else {}
    config = AutoConfig.for_model(kind, vocab_size=97, **sizes, **mixed)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path, 97)
    with pytest.raises(ModelFolderError, match=f"{kind}.*: .*not supported"):
        load_llm(tmp_path, "float32", torch.device("cpu"))


@pytest.mark.parametrize("kind", ["nemotron", "deepseek_v3"])
@pytest.mark.parametrize("role", ["llm", "ssm"])
def test_classes_that_misuse_the_attention_are_refused_at_the_start(
    ask, tiny, tmp_path, kind: str, role: str
) -> None:
    """One drops its keywords, the other has values narrower than keys: a pass tells, not a name."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    config = AutoConfig.for_model(kind, vocab_size=97, **sizes, **heads)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path, 97)
    with pytest.raises(ModelFolderError, match=f"{kind} is not supported: its first pass ends in"):
        if role == "llm":
            Engine.load(EngineConfig(model=tmp_path, dtype="float32", adaptive=False))
        else:
            ask(ssms=(tmp_path,))


def test_a_full_batch_of_64_trees_is_served(ask) -> None:
    """FlexFlow's server smashed its stack at 32 requests (flexflow-train#1491)."""
    asked = ask(max_batch=64, cache_tokens=8192)
    prompts = ["to be or not to be, to be", "abcabcabcabc", "Hello world", "x"]
    alone = [asked(prompt, max_new_tokens=12, ignore_eos=True).tokens for prompt in prompts]
    widest = 0
    forward = asked.engine._scheduler._speculator.llm.forward

    def counted(plan):  # type: ignore[no-untyped-def]
        nonlocal widest
        widest = max(widest, len(plan.contexts))
        return forward(plan)

    asked.engine._scheduler._speculator.llm.forward = counted  # type: ignore[method-assign]
    waiting = [
        asked.submit(prompts[i % 4], max_new_tokens=12, ignore_eos=True)[1] for i in range(96)
    ]
    assert [asked.gather(deltas).tokens for deltas in waiting] == alone * 24
    assert widest == 64


def test_nothing_is_sampled_from_an_unfinished_prompt(ask) -> None:
    """Chunked prefill beside speculation sampled from the chunk's last row (vllm PR#26231)."""
    prompt = "the quick brown fox jumps over the lazy dog"
    expected = ask()(prompt, max_new_tokens=8, ignore_eos=True)
    chunked = ask(prefill_rows=5, max_batch=4)
    mates = [chunked.submit("abcabc", max_new_tokens=30, ignore_eos=True)[1] for _ in range(3)]
    got = chunked(prompt, max_new_tokens=8, ignore_eos=True)
    assert got.tokens == expected.tokens
    assert got.last.stats.emitted == 8
    for deltas in mates:
        chunked.gather(deltas)


def test_a_draw_keeps_the_float32_law_it_came_from(tiny) -> None:
    """Drafts drawn in half precision and verified against another law are biased (DeepSpec#31)."""
    ssm = load_llm(tiny["llama"], "bfloat16", torch.device("cpu"))
    cache = ssm.new_cache(tokens=256, page_size=16)
    drafter = Expansion(
        ssm,
        cache,
        Planner(cut_short(TreeShape((2, 2))), Profile()),
        vocab=ssm.vocab,
        prefill_rows=64,
    )
    request = a_request([1, 2, 3])
    request.params = SamplingParams(temperature=1.0)
    tree = drafter.propose([request])[0]
    for draw in (draw for draws in tree.draws for draw in draws):
        assert draw.law is not None
        assert draw.law.dtype == torch.float32
        assert float(draw.law.sum()) == pytest.approx(1.0, abs=1e-5)
        assert draw.law[tree.tokens[draw.child]] > 0
    drafter.forget(request)


class Refusing:
    """Choices that reject whatever is not certain, and take the likeliest token."""

    def accepts(self, probability: float) -> bool:
        return probability >= 1

    def draw(self, law: Tensor) -> int:
        assert bool(law.isfinite().all()) and float(law.sum()) == pytest.approx(1.0, abs=1e-5)
        return int(law.argmax())


@pytest.mark.parametrize("verifier", [verify_multi_step, verify_traversal])
def test_a_rejection_that_leaves_nothing_owed_still_emits(verifier) -> None:
    """Where both laws agree but for rounding, the residual is 0 / 0: Sequoia's NaN."""
    law = torch.tensor([0.5, 0.3, 0.2])
    tree = TokenTree.rooted_at(0)
    tree.add(ROOT, 1, law * (1 + 1e-6))
    assert verifier(tree, torch.stack([law, law]), Refusing()) == ([], 0)
