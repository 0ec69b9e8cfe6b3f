"""The lean decoder against transformers' own classes, and rough linears against float32 ones."""

import functools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

import specinfer.lean.decoder
from specinfer.config import Quantization
from specinfer.errors import ConfigError, ModelFolderError
from specinfer.kv_cache import Commit
from specinfer.lean import LeanLM, load_llm, resolve_quantization
from specinfer.lean.decoder import Decoder
from specinfer.lean.linear import activation_range, dense
from specinfer.lean.load import load_decoder
from specinfer.lean.native import (
    CACHED,
    Block,
    Kind,
    NativeDecoder,
    Packed,
    Rounded,
    compile_library,
    unfit,
)
from specinfer.lean.native.library import CompilerError, find_compiler
from specinfer.lean.native.run import NEEDS
from specinfer.lean.rotary import BLOCK, Rotary
from specinfer.llm import CausalLM
from specinfer.tree_attention import Segment, chain, plan
from specinfer_kernels import tree_attention

CPU = torch.device("cpu")
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FITTING: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"num_key_value_heads": 2}),
    "llama-biases-tied": (
        "llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama3-rope": ("llama", {"num_key_value_heads": 1, "rope_parameters": LLAMA3}),
    "wide-heads": ("llama", {"num_key_value_heads": 2, "head_dim": 32}),
    "mistral-window": ("mistral", {"num_key_value_heads": 2, "sliding_window": 5}),
    "qwen2": ("qwen2", {"num_key_value_heads": 2}),
    "qwen2-window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"num_key_value_heads": 2, "head_dim": 16}),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "opt": ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "gelu": ("llama", {"hidden_act": "gelu"}),
    "dynamic-rope": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
}


def write(folder: Path, kind: str, settings: dict[str, Any], seed: int = 0) -> Path:
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        kind,
        **{
            "vocab_size": 61,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "intermediate_size": 96,
            "max_position_embeddings": 128,
            "initializer_range": 0.3,
            **settings,
        },
    )
    model: Any = AutoModelForCausalLM.from_config(config)
    for name, values in model.named_parameters():
        if "norm" in name or name.endswith("bias"):  # ones and zeros would hide a mistake
            torch.nn.init.normal_(values, 1.0, 0.3)
    model.save_pretrained(folder)
    return folder


def tree_rows(
    llm: CausalLM,
    prompt: Sequence[int],
    tokens: Sequence[int],
    parents: Sequence[int],
    room: int = 64,
) -> Tensor:
    """Return the logits of a tree behind a prompt."""
    cache = llm.new_cache(tokens=room, page_size=8)
    sequence = cache.open([])
    cache.reserve(sequence, len(prompt) + len(tokens))
    assert llm.forward(plan(cache, [chain(sequence, prompt, wanted=False)])).shape[0] == 0
    cache.commit([Commit(sequence, range(len(prompt)), prompt)])
    return llm.forward(plan(cache, [Segment(sequence, tokens, parents, range(len(tokens)))]))


PROMPT = [5, 9, 3, 44, 2, 17, 23, 8, 60, 1, 12]
TREE = ([7, 4, 4, 30, 11, 2], [-1, 0, 0, 1, 2, 4])


@pytest.mark.parametrize("name", FITTING)
def test_logits_are_those_of_transformers_class(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, *FITTING[name])
    lean = load_llm(folder, "float32", CPU)
    assert isinstance(lean, LeanLM)
    torch.testing.assert_close(
        tree_rows(lean, PROMPT, *TREE),
        tree_rows(CausalLM.load(folder, "float32", CPU), PROMPT, *TREE),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures_are_run_by_transformers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    folder = write(tmp_path, *OTHERS[name])
    with caplog.at_level("INFO"):
        llm = load_llm(folder, "float32", CPU)
    assert not isinstance(llm, LeanLM)
    assert "no lean decoder" in caplog.text
    expected = tree_rows(CausalLM.load(folder, "float32", CPU), PROMPT, *TREE)
    assert torch.equal(tree_rows(llm, PROMPT, *TREE), expected)


@pytest.mark.parametrize("name", ["llama", "llama-biases-tied", "opt"])
def test_int8_stays_near_float32(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, *(FITTING | OTHERS)[name])
    exact = tree_rows(load_llm(folder, "float32", CPU), PROMPT, *TREE)
    rough = tree_rows(load_llm(folder, "auto", CPU, "int8"), PROMPT, *TREE)
    assert (rough - exact).norm() < 0.06 * exact.norm()


@pytest.mark.parametrize("name", ["llama", "llama-biases-tied", "qwen3", "opt"])
def test_bfloat16_stays_near_float32(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, *(FITTING | OTHERS)[name])
    exact = tree_rows(load_llm(folder, "float32", CPU), PROMPT, *TREE)
    rough = tree_rows(load_llm(folder, "bfloat16", CPU), PROMPT, *TREE)
    assert (rough - exact).norm() < 0.03 * exact.norm()


def native_llm(folder: Path, kind: Kind) -> LeanLM:
    """Load a folder for decoder.c, or skip the test."""
    llm = load_llm(folder, "bfloat16", CPU, "int8" if kind == "int8" else "none")
    if not isinstance(llm, LeanLM) or not isinstance(llm.decoder, NativeDecoder):
        pytest.skip(f"no AVX-512 for {kind} or no C compiler: run by torch's operators")
    assert llm.decoder.kind == kind
    return llm


def in_torch(folder: Path, native: LeanLM) -> LeanLM:
    """Return the decoder loop over what a native one's linears compute, in torch."""
    layout = Packed if native.precision == "int8" else Rounded
    make = functools.partial(layout, block=Block(1 << 20))
    decoder = load_decoder(folder, native.config, torch.float32, make)
    return LeanLM(decoder, native.config, "in torch")


@pytest.fixture
def caches_in_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the decoder loop read keys and values rounded as decoder.c keeps them."""

    def attend(query: Tensor, keys: Tensor, values: Tensor, *args: Any, **settings: Any) -> Tensor:
        cached = (side.to(CACHED).float() for side in (keys, values))
        return tree_attention(query, *cached, *args, **settings)

    monkeypatch.setattr(specinfer.lean.decoder, "tree_attention", attend)


@pytest.mark.usefixtures("caches_in_16_bits")
@pytest.mark.parametrize("kind", ["int8", "bf16"])
@pytest.mark.parametrize("name", FITTING)
def test_c_computes_what_the_decoder_of_its_linears_does(
    tmp_path: Path, name: str, kind: Kind
) -> None:
    """Sums in another order may round a level, or a key in the cache, the other way."""
    folder = write(tmp_path, *FITTING[name])
    native = native_llm(folder, kind)
    own, expected = (tree_rows(llm, PROMPT, *TREE) for llm in (native, in_torch(folder, native)))
    assert (own - expected).norm() < 0.03 * expected.norm()


def test_c_in_bfloat16_is_no_rougher_than_torch(tmp_path: Path) -> None:
    """Its stream and attention are float32, its cache of 11 bits; torch rounds all to 8."""
    folder = write(tmp_path, *FITTING["llama"])
    native = native_llm(folder, "bf16")
    exact, own = (
        tree_rows(llm, PROMPT, *TREE) for llm in (load_llm(folder, "float32", CPU), native)
    )
    make = functools.partial(dense, dtype=torch.bfloat16)
    by_torch = LeanLM(
        load_decoder(folder, native.config, torch.bfloat16, make), native.config, "torch"
    )
    theirs = tree_rows(by_torch, PROMPT, *TREE)
    assert (own - exact).norm() < (theirs - exact).norm() < 0.03 * exact.norm()
    assert (own - theirs).norm() < 0.03 * exact.norm()


@pytest.mark.usefixtures("caches_in_16_bits")
@pytest.mark.parametrize(
    ("rows", "threads"), [(1, 1), (2, 3), (3, 2), (7, 2), (15, 4), (16, 1), (33, 2), (64, 5)]
)
@pytest.mark.parametrize("kind", ["int8", "bf16"])
def test_any_number_of_rows_and_threads(
    tmp_path: Path, kind: Kind, rows: int, threads: int
) -> None:
    """Every tile of rows, threads without a share of a linear, paths that part and meet no more."""
    llm = native_llm(write(tmp_path, *FITTING["qwen2"]), kind)
    tokens = [(7 * row) % 61 for row in range(rows)]
    parents = [row // 2 - 1 for row in range(rows)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found = tree_rows(llm, PROMPT, tokens, parents, room=128)
    torch.set_num_threads(before)
    expected = tree_rows(in_torch(tmp_path, llm), PROMPT, tokens, parents, room=128)
    assert (found - expected).norm() < 0.01 * expected.norm()


@pytest.mark.parametrize("quantization", ["int8", "none"])
def test_without_a_compiler_torch_runs_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    quantization: Quantization,
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    llm = load_llm(write(tmp_path, *FITTING["llama"]), "bfloat16", CPU, quantization)
    assert isinstance(llm, LeanLM) and isinstance(llm.decoder, Decoder)
    assert "through torch's operators, which is slower" in caplog.text
    exact = tree_rows(load_llm(tmp_path, "float32", CPU), PROMPT, *TREE)
    assert (tree_rows(llm, PROMPT, *TREE) - exact).norm() < 0.06 * exact.norm()


def test_float32_is_run_by_torch_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    llm = load_llm(write(tmp_path, *FITTING["llama"]), "float32", CPU)
    assert isinstance(llm, LeanLM) and isinstance(llm.decoder, Decoder)
    assert "torch" not in caplog.text


def test_precisions_have_answers_of_their_own(tmp_path: Path) -> None:
    """bfloat16 in C computes in float32, and was one with float32 in the cache of answers."""
    folder = write(tmp_path, *FITTING["llama"])
    names = {load_llm(folder, dtype, CPU).precision for dtype in ("float32", "bfloat16")}
    assert len(names) == 2


def test_auto_is_int8_only_where_c_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / "llama", *FITTING["llama"])
    other = write(tmp_path / "opt", *OTHERS["opt"])
    assert resolve_quantization("int8", folder, CPU) == "int8"
    assert resolve_quantization("auto", folder, torch.device("cuda")) == "none"
    assert resolve_quantization("auto", other, CPU) == "none"
    found = resolve_quantization("auto", folder, CPU)
    llm = load_llm(folder, "auto", CPU, "auto")
    assert isinstance(llm, LeanLM) and isinstance(llm.decoder, NativeDecoder) is (found == "int8")
    monkeypatch.setenv("CC", "no-such-compiler")
    with caplog.at_level("INFO"):
        assert resolve_quantization("auto", folder, CPU) == "none"
    assert "quantization auto is none" in caplog.text


def test_what_decoder_c_cannot_run_is_told() -> None:
    config = AutoConfig.for_model("llama", hidden_size=60, num_attention_heads=3)
    old = dict.fromkeys(NEEDS, True)
    assert "has no avx512_vnni" in str(unfit(config, old, "int8"))
    assert "has no avx512_bf16" in str(unfit(config, old, "bf16"))
    assert "multiples of 16" in str(unfit(config, old | {"avx512_vnni": True}, "int8"))


def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'decoder.c: bad day' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(CompilerError, match="decoder.c: bad day"):
        compile_library(find_compiler({"CC": str(broken)}))


def test_a_checkpoint_without_a_needed_tensor_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = write(tmp_path, *FITTING["llama"])
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFolderError, match=r"no tensor .*layers\.1\.mlp\.up_proj"):
        load_llm(folder, "float32", CPU)


def test_sharded_weights_are_read(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", *FITTING["llama"])
    model: Any = AutoModelForCausalLM.from_pretrained(whole)
    model.save_pretrained(tmp_path / "shards", max_shard_size="100KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    rows = [
        tree_rows(load_llm(folder, "float32", CPU), PROMPT, *TREE)
        for folder in (whole, tmp_path / "shards")
    ]
    assert torch.equal(*rows)


def test_positions_beyond_the_first_block_of_the_rotary_table() -> None:
    config = AutoConfig.for_model("llama", hidden_size=64, num_attention_heads=4)
    places = torch.tensor([BLOCK * 2 + 5, 3])
    cos, sin = Rotary(config, torch.float32)(places)
    angle = places[:, None, None].float() * 10000.0 ** (-torch.arange(0, 16, 2) / 16)
    torch.testing.assert_close(cos, angle.cos().repeat(1, 1, 2), rtol=0, atol=2e-4)
    expected = torch.cat([-angle.sin(), angle.sin()], -1)
    torch.testing.assert_close(sin, expected, rtol=0, atol=2e-4)


def test_a_torch_without_the_packed_operator_is_named() -> None:
    with pytest.raises(ConfigError, match="quantization: int8 needs a build of torch"):
        activation_range(["qnnpack"])


def test_a_server_of_lean_models_never_imports_transformers_modules() -> None:
    """They cost 170 MB and 2 seconds of every process."""
    script = (
        "import sys, specinfer.engine, specinfer.server.app\n"
        "print([name for name in sys.modules if name.startswith('transformers.modeling_utils')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
