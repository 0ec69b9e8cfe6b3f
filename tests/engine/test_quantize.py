"""Linears of fewer bits: what they compute, what they weigh, and what trees over them promise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from specinfer.config import EngineConfig, Quantization, TreeShape
from specinfer.engine import Engine
from specinfer.errors import ConfigError
from specinfer.kv_cache import Commit
from specinfer.lean import load_llm
from specinfer.lean.linear import Int8Module
from specinfer.lean.quantize import (
    GROUP,
    Int4Weight,
    Int8Rows,
    Int8Weight,
    int4_levels,
    quantize,
)
from specinfer.llm import CausalLM
from specinfer.ssm import load_ssm
from specinfer.tree_attention import chain, plan

CPU = torch.device("cpu")
PROMPTS = [[5, 6, 7, 5, 6, 7, 5], list(range(20, 60)), [31, 7, 31, 7, 31]]
MAKE: dict[str, Callable[[nn.Linear, torch.device], nn.Module]] = {
    "int8": Int8Rows,
    "int8_weight_only": Int8Weight,
    "int4_weight_only": Int4Weight,
}
KINDS: list[Quantization] = ["int8", "int8_weight_only", "int4_weight_only"]
OFF = {"int8": 0.03, "int8_weight_only": 0.02, "int4_weight_only": 0.12}  # of a random weight


def a_linear(inputs: int = 96, outputs: int = 48, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs, bias=bias).bfloat16().requires_grad_(False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_stays_near_what_it_was(kind, bias) -> None:
    linear = a_linear(bias=bias)
    x = torch.randn(2, 5, 96, dtype=torch.bfloat16)
    near, exact = MAKE[kind](linear, CPU)(x), linear(x)
    assert near.shape == exact.shape and near.dtype == torch.bfloat16
    assert (near - exact).float().norm() < OFF[kind] * exact.float().norm()


def test_int4_multiplies_what_its_levels_stand_for() -> None:
    linear = a_linear(bias=False)
    levels, scales = int4_levels(linear.weight)
    assert levels.min() == 0 and levels.max() == 15
    scale, middle = scales.float().transpose(0, 1).repeat_interleave(GROUP, 1).unbind(-1)
    weight = (levels - 8) * scale + middle
    x = torch.randn(7, 96).bfloat16()
    torch.testing.assert_close(
        Int4Weight(linear, CPU)(x).float(), x.float() @ weight.t(), rtol=2e-2, atol=2e-2
    )


def test_the_gpus_int8_is_the_cpus() -> None:
    linear, x = a_linear().float(), torch.randn(7, 96)
    torch.testing.assert_close(Int8Rows(linear, CPU)(x), Int8Module(linear)(x), rtol=0, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rows_bits_do_not_depend_on_the_rows_beside_it(kind) -> None:
    """So with sums in integers; of the others this processor's kernels happen to be so."""
    linear = MAKE[kind](a_linear(576, 576), CPU)
    x = torch.randn(40, 576).bfloat16()
    whole = linear(x)
    for rows in (1, 2, 3, 4, 8, 17):
        assert torch.equal(linear(x[:rows]), whole[:rows]) or kind != "int8"


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 16, 17, 40])
def test_a_gpu_computes_what_a_cpu_does(kind, rows) -> None:
    linear, gpu = a_linear(576, 64), torch.device("cuda")
    x = torch.randn(rows, 576).bfloat16()
    on_gpu = MAKE[kind](linear, gpu).to(gpu)(x.to(gpu)).cpu()
    expected = MAKE[kind](linear, CPU)(x)
    torch.testing.assert_close(on_gpu, expected, rtol=3e-2, atol=3e-2)


def logits(llm: CausalLM, tokens: list[int]) -> Tensor:
    cache = llm.new_cache(tokens=64, page_size=4)
    sequence = cache.open([])
    cache.reserve(sequence, len(tokens))
    return llm.forward(plan(cache, [chain(sequence, tokens, wanted=True)]))[0]


@pytest.mark.parametrize("kind", ["int8_weight_only", "int4_weight_only"])
@pytest.mark.parametrize("model", ["llama", "qwen2", "opt"])
def test_every_architecture_is_quantized(tiny, model, kind) -> None:
    exact = logits(CausalLM.load(tiny[model], "float32", CPU), [1, 2, 3])
    near = logits(load_llm(tiny[model], "auto", CPU, kind), [1, 2, 3])
    assert (near - exact).norm() < (0.06 if kind == "int8_weight_only" else 0.35) * exact.norm()


def weight_of(model: nn.Module) -> int:
    held = [*model.parameters(), *model.buffers()]
    return sum(one.untyped_storage().nbytes() for one in {id(t): t for t in held}.values())


@pytest.mark.parametrize(
    ("kind", "share"), [("int8_weight_only", 0.52), ("int8", 0.52), ("int4_weight_only", 0.34)]
)
def test_layers_take_less_memory(kind, share) -> None:
    """A scale an output beside 8 bits; 32 bits for 32 weights of 4, so 5 in all."""
    model = large("llama").bfloat16()
    before = weight_of(model.model.layers)
    if kind == "int8":  # a CPU's is packed out of sight
        for layer in model.model.layers:
            layer.mlp.up_proj = Int8Rows(layer.mlp.up_proj, CPU)
        assert weight_of(layer.mlp.up_proj) < share * 2 * 256 * 512
        return
    quantize(model, kind, CPU)
    assert weight_of(model.model.layers) < share * before


def large(kind: str, **settings: Any) -> Any:
    config = AutoConfig.for_model(
        kind,
        vocab_size=64,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        **settings,
    )
    auto: Any = AutoModelForCausalLM
    return auto.from_config(config)


def test_int4_leaves_the_head() -> None:
    model = large("llama", tie_word_embeddings=True).bfloat16()
    quantize(model, "int4_weight_only", CPU)
    assert type(model.lm_head) is nn.Linear
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_plain_tokens_from_trees_where_rows_are_exact(tiny, ask) -> None:
    """In float32 int8 weights are multiplied as any float32 weights are."""
    plain = ask(lookup=False, quantization="int8_weight_only")
    trees = ask(ssms=(tiny["ssm"],), tree=TreeShape((2, 2, 1)), quantization="int8_weight_only")
    waiting = [trees.submit(prompt, max_new_tokens=24)[1] for prompt in PROMPTS]
    told = [trees.gather(deltas).tokens for deltas in waiting]
    assert told == [plain(prompt, max_new_tokens=24).tokens for prompt in PROMPTS]


@pytest.mark.parametrize("kind", ["int8_weight_only", "int4_weight_only"])
def test_a_tree_token_is_the_likeliest_but_for_bfloat16s_ties(tiny, ask, kind) -> None:
    """Every token is plain decoding's after the same text, or within rounding of it."""
    settings = {"quantization": kind, "dtype": "bfloat16"}
    trees = ask(ssms=(tiny["ssm"],), tree=TreeShape((2, 2, 1)), **settings)
    llm = load_llm(tiny["llama"], "bfloat16", CPU, kind)
    for prompt in PROMPTS:
        cache = llm.new_cache(tokens=128, page_size=4)
        sequence = cache.open([])
        text = list(prompt)
        for token in trees(prompt, max_new_tokens=24).tokens:
            new = text[sequence.length :]
            cache.reserve(sequence, len(new))
            row = llm.forward(plan(cache, [chain(sequence, new, wanted=True)]))[0]
            cache.commit([Commit(sequence, range(len(new)), new)])
            assert row[token] >= row.amax() - 2**-6 * row.abs().amax()  # two roundings
            text.append(token)


@pytest.mark.parametrize("kind", ["int8_weight_only", "int4_weight_only"])
def test_one_setting_quantizes_llm_and_ssms(tiny, kind) -> None:
    config = EngineConfig(model=tiny["opt"], ssms=(tiny["ssm"],), quantization=kind)
    llm = load_llm(config.model, config.dtype, CPU, kind)
    ssm = load_ssm(tiny["ssm"], llm, config).model
    for model in (llm.model, ssm.model):
        assert any(type(module) is MAKE[kind] for module in model.modules())


def test_an_off_loaded_llm_keeps_its_weights_and_its_ssm_does_not(tiny, ask) -> None:
    plain = ask(lookup=False)
    settings = {"ssms": (tiny["ssm"],), "tree": TreeShape((2, 1)), "offload_layers": 2}
    for kind in ("int8", "auto", "int8_weight_only"):
        off = ask(offload="disk", quantization=kind, **settings)
        for prompt in PROMPTS:
            assert off(prompt, max_new_tokens=12).tokens == plain(prompt, max_new_tokens=12).tokens
        assert off.engine.revision == plain.engine.revision


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"quantization": "int4_weight_only", "dtype": "float32"}, "computes in bfloat16, not"),
        ({"quantization": "int4_weight_only", "tensor_parallel": 2}, "tensor_parallel: goes with"),
        ({"quantization": "int3"}, "quantization: must be one of"),
    ],
)
def test_what_cannot_be_is_refused(tiny, settings, said) -> None:
    with pytest.raises(ConfigError, match=said):
        Engine.load(EngineConfig(model=tiny["llama"], **settings))


def test_sizes_that_no_group_divides_are_refused(tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "llama", hidden_size=40, intermediate_size=40, num_attention_heads=2, vocab_size=48
    )
    auto: Any = AutoModelForCausalLM
    with pytest.raises(ConfigError, match="inputs that 32 divides"):
        quantize(auto.from_config(config), "int4_weight_only", CPU)
