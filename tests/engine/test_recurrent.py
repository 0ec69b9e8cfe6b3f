"""The recurrent SSM by itself: its formula, its folder, and its step in C."""

import functools
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from specinfer.config import EngineConfig
from specinfer.errors import ConfigError, ModelFolderError
from specinfer.lean import load_llm
from specinfer.lean.linear import dense
from specinfer.lean.llm import step_library
from specinfer.lean.native import Block, NativeRecurrent, Packed
from specinfer.lean.recurrent import Recurrent, build_recurrent
from specinfer.ssm import WEIGHTS, RecurrentSSM, is_recurrent, load_ssm, restored
from specinfer.ssm.folder import read_settings, read_weights
from specinfer.testing.toy import write_tiny_recurrent

KNOWN = torch.tensor([0, 3, 5, 8, 13, 21, 34, 55, 89])
EPS = 1e-5


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory) -> Path:
    return write_tiny_recurrent(tmp_path_factory.mktemp("recurrent"), tiny["llama"], KNOWN)


def reference(folder: Path, embedding: Tensor, head: Tensor) -> Recurrent:
    weights = restored(read_weights(folder / WEIGHTS))
    make = functools.partial(dense, dtype=torch.float32)
    return build_recurrent(weights, embedding, head, EPS, torch.float32, make)


def test_a_step_is_what_the_formula_says(folder: Path) -> None:
    embedding, head = torch.randn(97, 64), torch.randn(len(KNOWN), 64)
    own = restored(read_weights(folder / WEIGHTS))
    states, tokens = torch.randn(3, 64), torch.tensor([4, 96, 0])

    def rms(x: Tensor, name: str) -> Tensor:
        return rms_norm(x, (64,), eps=EPS) * own[f"{name}.weight"]

    entered = torch.cat([rms(states, "state_norm"), rms(embedding[tokens], "token_norm")], 1)
    u = states + entered @ own["inward.weight"].T
    for block in ("blocks.0", "blocks.1"):
        n = rms(u, f"{block}.norm")
        gate, up = (n @ own[f"{block}.{name}_proj.weight"].T for name in ("gate", "up"))
        u = u + (silu(gate) * up) @ own[f"{block}.down_proj.weight"].T
    ssm = reference(folder, embedding, head)
    assert torch.allclose(ssm.step(states, tokens), u, atol=1e-4)
    assert torch.allclose(ssm.logits(u), rms(u, "norm") @ head.T, atol=1e-4)


def test_its_folder_says_what_it_is(folder: Path) -> None:
    assert is_recurrent(folder)
    settings = json.loads((folder / "specinfer.json").read_text())
    assert settings == {
        "format": 1,
        "role": "ssm",
        "kind": "recurrent",
        "borrows": ["embedding", "head", "state"],
        "rms_norm_eps": EPS,
        "licence": "none",
    }
    assert read_settings(folder) == settings


@pytest.fixture(scope="module", params=[(64, 96, 9), (48, 32, 33), (176, 160, 70)], ids=str)
def pair(request, tmp_path_factory) -> tuple[Recurrent, Recurrent, NativeRecurrent]:
    """The reference in float32, the same in int8 levels, and step.c, for several widths."""
    hidden, inner, known = request.param
    library, reason = step_library(hidden, inner)
    if library is None:
        pytest.skip(reason)
    random = torch.Generator().manual_seed(hidden)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    weights = {f"{name}.weight": 1 + 0.2 * draw(hidden) for name in ("state_norm", "token_norm")}
    weights |= {"norm.weight": draw(hidden), "inward.weight": 0.1 * draw(hidden, 2 * hidden)}
    for block in ("blocks.0", "blocks.1", "blocks.2"):
        weights[f"{block}.norm.weight"] = 1 + 0.2 * draw(hidden)
        weights[f"{block}.gate_proj.weight"] = 0.1 * draw(inner, hidden)
        weights[f"{block}.up_proj.weight"] = 0.1 * draw(inner, hidden)
        weights[f"{block}.down_proj.weight"] = 0.1 * draw(hidden, inner)
    given = weights, draw(97, hidden).bfloat16(), draw(known, hidden), EPS, torch.float32
    packed = functools.partial(Packed, block=Block(8 << 20))
    rounded = build_recurrent(*given, packed)
    exact = build_recurrent(*given, functools.partial(dense, dtype=torch.float32))
    return exact, rounded, NativeRecurrent(rounded, library)


def test_c_computes_what_the_reference_does(pair) -> None:
    exact, rounded, native = pair
    states = torch.randn(7, exact.embedding.shape[1], generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([5, 0, 96, 7, 7, 1, 2])
    for got, levels, want in zip(
        native(states, tokens), rounded(states, tokens), exact(states, tokens), strict=True
    ):
        assert float((got - levels).norm() / want.norm()) < 0.01  # a level may round away
        assert float((got - want).norm() / want.norm()) < 0.05


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_rows_bits_depend_on_nothing_but_the_row(pair, threads: int) -> None:
    native, width = pair[2], pair[0].embedding.shape[1]
    states, tokens = torch.randn(37, width), torch.randint(97, (37,))
    alone = [native(states[row : row + 1], tokens[row : row + 1]) for row in range(37)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    for size in (1, 2, 3, 5, 8, 15, 37):
        together = native(states[:size].contiguous(), tokens[:size])
        for got, rows in zip(together, zip(*alone[:size], strict=True), strict=True):
            assert torch.equal(got, torch.cat(rows))
    torch.set_num_threads(before)


def loaded(folder: Path, llm: Path, **settings: Any) -> RecurrentSSM:
    config = EngineConfig(model=llm, **{"dtype": "float32", **settings})
    model = load_llm(llm, config.dtype, torch.device("cpu"), config.quantization)
    ssm = load_ssm(folder, model, config)
    assert isinstance(ssm, RecurrentSSM)
    return ssm


@pytest.mark.parametrize("settings", [{}, {"quantization": "int8"}, {"dtype": "bfloat16"}], ids=str)
def test_without_a_compiler_torch_computes_it(tiny, folder, monkeypatch, caplog, settings) -> None:
    exact = loaded(folder, tiny["llama"])
    monkeypatch.setenv("CC", "no-such-compiler")
    with caplog.at_level(logging.WARNING):
        slow = loaded(folder, tiny["llama"], **settings)
    assert isinstance(slow.model, Recurrent)
    assert "drafts without step.c, which is slower: no C compiler" in caplog.text
    states = torch.randn(3, 64)
    for got, want in zip(slow.step(states, [5, 9, 5]), exact.step(states, [5, 9, 5]), strict=True):
        assert float((got - want).norm() / want.norm()) < 0.05
    assert slow.step(states, [1, 2, 3])[1].dtype == torch.float32


def test_one_of_another_llm_is_refused(tiny, folder) -> None:
    with pytest.raises(ModelFolderError, match="made for another LLM than ssm"):
        loaded(folder, tiny["ssm"])


def test_an_unknown_kind_is_refused(tiny, tmp_path) -> None:
    ssm = write_tiny_recurrent(tmp_path / "s", tiny["llama"], KNOWN)
    settings = json.loads((ssm / "specinfer.json").read_text())
    for change, words in (
        ({"kind": "cyclic"}, "its kind is 'cyclic'"),
        ({"rms_norm_eps": None}, "its rms_norm_eps is None"),
        ({"rms_norm_eps": 2.0}, "its rms_norm_eps is 2.0"),
    ):
        (ssm / "specinfer.json").write_text(json.dumps(settings | change))
        with pytest.raises(ModelFolderError, match=words):
            loaded(ssm, tiny["llama"])


def test_tensors_of_another_shape_are_refused_by_name(tiny, tmp_path) -> None:
    ssm = write_tiny_recurrent(tmp_path / "s", tiny["llama"], KNOWN)
    whole = load_file(ssm / WEIGHTS)
    row = torch.zeros(64)
    for name, value, words in (
        ("norm.weight", None, "norm.weight is missing"),
        ("norm.weight", torch.zeros(63), r"norm.weight is \(63,\), not \(64,\)"),
        ("blocks.1.norm.weight", None, "blocks.1.down_proj.weight is .*, not known"),
        ("blocks.2.norm.weight", row, "blocks.2.down_proj.weight is missing"),
        ("stranger.weight", row, "stranger.weight is .*, not known"),
        ("inward.weight", row, "inward.weight is"),
    ):
        changed = {**whole, name: value} if value is not None else {**whole}
        if value is None:
            changed.pop(name)
        if name == "inward.weight":
            changed = {k: v for k, v in changed.items() if not k.startswith("inward.weight.")}
        save_file(changed, ssm / WEIGHTS)
        with pytest.raises(ModelFolderError, match=words):
            loaded(ssm, tiny["llama"])


def test_an_llm_that_hands_out_no_states_is_refused(tiny, folder) -> None:
    model = load_llm(tiny["llama"], "float32", torch.device("cpu"))
    closed: Any = SimpleNamespace(
        name="closed", config=model.config, vocab=97, device=model.device, state_width=None
    )
    with pytest.raises(ConfigError, match=r"state of 64 numbers; closed hands out none"):
        load_ssm(folder, closed, EngineConfig(model=tiny["llama"]))
