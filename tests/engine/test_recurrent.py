"""The recurrent SSM by itself: its formula, its folder, and decoder.c's neighbour that runs it."""

import functools
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from specinfer.lean.linear import dense
from specinfer.lean.recurrent import Recurrent, build_recurrent
from specinfer.ssm import WEIGHTS, is_recurrent, restored
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
