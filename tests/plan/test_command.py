"""`specinfer plan` as it is typed."""

import json

import pytest

from specinfer.cli import main
from specinfer.server.settings import load_settings

SMALL = ["plan", "--model", "llama-7b", "--ssm", "llama-68m", "--traffic", "requests=1,seconds=10"]


def test_the_table_recommends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SMALL) == 0
    text = capsys.readouterr().out
    assert "Take the small stack: 1 x ml.g" in text
    assert "Acceptance 0.60, assumed" in text and "Prices of 2026" in text


def test_the_document_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--acceptance", "0.7", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["acceptance"] == {"rate": 0.7, "from": "given"}
    assert document["recommended"]["stack"] == "small"
    assert all(row["usd_per_million_tokens"] > 0 for row in document["choices"])


def test_what_is_recommended_is_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    large = ["plan", "--model", "llama-3.1-70b", "--instance", "ml.g5.48xlarge", "--traffic"]
    main([*large, "seconds=60", "--json"])
    told = json.loads(capsys.readouterr().out)["recommended"]["settings"]
    assert told["SPECINFER_TP"] == "8"
    settings = load_settings(told).engine
    assert settings.tensor_parallel == 8
    assert settings.cache_tokens == int(told["SPECINFER_CACHE_TOKENS"])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--acceptance", "1"], "acceptance: must be at least 0 and below 1"),
        (["--instance", "ml.t2.micro"], "no instance type ml.t2.micro"),
        (["--ssm", "default"], "an SSM must share the LLM's tokenizer"),
        (["--traffic", "prompt=4000"], "the context of llama-7b holds 2048"),
        (["--offload", "disk"], "offload: needs the speed of the disk or of PCIe"),
    ],
)
def test_what_is_impossible_is_one_line(
    more: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *more]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


def test_fewer_bits_and_layers_from_afar_fit_where_bfloat16_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    large = ["plan", "--model", "llama-3.1-70b", "--instance", "ml.g5.xlarge", "--json"]
    large += ["--traffic", "requests=0.001,seconds=3600,prompt=64,new=64"]
    assert main(large) == 2
    assert "off-loading (--offload)" in capsys.readouterr().err
    assert main([*large, "--offload", "cpu", "--offload-gb-per-s", "12"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["recommended"]["settings"]["SPECINFER_OFFLOAD"] == "cpu"
    assert told["choices"][0]["step_s"] > 130e9 / 12e9
    small = ["plan", "--model", "llama-7b", "--instance", "ml.g5.xlarge", "--json"]
    weights = []
    for bits in ("none", "int8", "int4_weight_only"):
        assert main([*small, "--quantization", bits]) == 0
        document = json.loads(capsys.readouterr().out)
        settings = document["recommended"]["settings"]
        assert settings.get("SPECINFER_QUANTIZATION", "none") == bits
        assert bits == "none" or load_settings(settings).engine.quantization == bits
        weights.append(document["choices"][0]["memory"]["weights"])
    assert weights[0] > 1.9 * weights[1] > 2.5 * weights[2]


@pytest.mark.parametrize("bits", ["none", "int8", "int4_weight_only"])
def test_this_machine_is_measured(bits: str, capsys: pytest.CaptureFixture[str]) -> None:
    here = ["plan", "--here", "--json", "--quantization", bits]
    assert main([*here, "--traffic", "requests=0.001,seconds=3600"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["choices"]
    assert row["instance"] == "this machine" and row["usd_per_hour"] is None
