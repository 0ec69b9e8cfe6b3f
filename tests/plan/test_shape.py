"""Parameters are counted on transformers' own classes, and equal what the models' pages say."""

import json
from pathlib import Path

import pytest

from specinfer.errors import ModelFolderError
from specinfer.model_store import CATALOGUE
from specinfer.plan.errors import PlanError
from specinfer.plan.shape import find_shape, find_ssm, known_shapes
from specinfer.ssm import POOLS

PUBLISHED = {
    "smollm2-135m-instruct": 134_515_008,
    "qwen2.5-coder-0.5b-instruct": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "llama-68m": 68_030_208,
    "llama-7b": 6_738_415_616,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "opt-125m": 125_239_296,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published_ones(name: str) -> None:
    assert find_shape(name).parameters == PUBLISHED[name]


def test_an_input_embedding_of_its_own_is_not_read() -> None:
    untied, tied = find_shape("llama-3.1-8b"), find_shape("llama-3.2-1b")
    assert untied.parameters - untied.read == 128_256 * 4096
    assert tied.parameters == tied.read


def test_a_recurrent_ssm_caches_nothing_and_borrows_its_head() -> None:
    llm = find_shape("smollm2-135m-instruct")
    ssm = find_ssm(str(POOLS / llm.name / "ssm-1"), llm)
    learnt = 576 * 1152 + 2 * 3 * 576 * 1536
    assert (ssm.parameters, ssm.read) == (learnt, learnt + 8192 * 576)
    assert ssm.cache_bytes(2) == 0 and ssm.vocab == llm.vocab
    assert find_ssm("llama-68m", llm) == find_shape("llama-68m")


def test_cache_of_a_token() -> None:
    assert find_shape("llama-7b").cache_bytes(2) == 512 * 1024
    assert find_shape("llama-3.1-8b").cache_bytes(2) == 128 * 1024


def test_the_catalogue_needs_no_download() -> None:
    assert {model.name for model in CATALOGUE} <= known_shapes().keys()
    assert find_shape("default").name == "smollm2-135m-instruct"


def test_a_folder_needs_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(known_shapes()["llama-68m"]))
    assert find_shape(str(tmp_path)).parameters == 68_030_208


def test_what_the_engine_cannot_serve_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    with pytest.raises(ModelFolderError):
        find_shape(str(tmp_path))


def test_figures_will_do() -> None:
    text = "parameters=8e9,layers=32,heads=32,kv_heads=8,head_dim=128,vocab=128256,context=8192"
    shape = find_shape(text)
    assert (shape.read, shape.hidden) == (8_000_000_000, 4096)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("layers=32", "missing, unknown or below 1: context"),
        ("layers=many", "expected figures like"),
        ("no-such-model", "neither a folder with config.json nor a known name"),
    ],
)
def test_what_is_no_model_is_told(text: str, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        find_shape(text)
