"""`specinfer profile`: rates measured with real passes, and an engine that uses them."""

import json
from pathlib import Path

import pytest
import torch

from specinfer import cli
from specinfer.testing.toy import write_tiny_recurrent


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": text}) for text in ("abc", "Hello", "xyz")))
    return path


def profile(tiny, prompts: Path, out: Path, ssm: str) -> int:
    where = ["--model", str(tiny["llama"]), "--ssm", str(tiny[ssm]), "--prompts", str(prompts)]
    sizes = ["--nodes", "6", "--depth", "3", "--max-new-tokens", "40", "--dtype", "float32"]
    return cli.main(["profile", *where, "--out", str(out), *sizes])


def test_an_ssm_that_is_the_llm_stands_at_its_first_rank(ask, tiny, tmp_path, prompts, capsys):
    out = tmp_path / "profile.json"
    assert profile(tiny, prompts, out, "llama") == 0
    rates = json.loads(out.read_text())
    assert rates["greedy"][0] > 0.85
    assert max(rates["greedy"][1:]) < 0.1
    assert rates["sampled"][0] > 0.85
    assert "best for one request" in capsys.readouterr().out
    chosen = {"tree": "profiled", "tree_nodes": 5, "tree_profile": out, "lookup": False}
    tree = ask(ssms=(tiny["llama"],), **chosen)
    got = tree("abc", max_new_tokens=24, ignore_eos=True)
    assert got.tokens == ask(lookup=False)("abc", max_new_tokens=24, ignore_eos=True).tokens
    assert got.last.stats.tokens_per_step > 4, "a chain of five is best for such rates"


def test_a_profiled_tree_of_a_poor_ssm_is_lossless_too(ask, tiny) -> None:
    tree = ask(ssms=(tiny["ssm"],), tree="profiled", tree_nodes=7, lookup=False)
    plain = ask(lookup=False)
    for prompt in ("abc", "Hello"):
        assert tree(prompt, max_new_tokens=20).tokens == plain(prompt, max_new_tokens=20).tokens


def test_a_recurrent_ssm_is_measured_and_drafts_by_what_was_found(
    ask, tiny, tmp_path, prompts, capsys
) -> None:
    ssm = write_tiny_recurrent(tmp_path / "recurrent", tiny["llama"], torch.arange(97))
    out = tmp_path / "profile.json"
    assert profile({**tiny, "recurrent": ssm}, prompts, out, "recurrent") == 0
    assert json.loads(out.read_text())["ssm"] == "recurrent"
    tree = ask(ssms=(ssm,), tree="profiled", tree_nodes=5, tree_profile=out, lookup=False)
    want = ask(lookup=False)("abc", max_new_tokens=20, ignore_eos=True).tokens
    assert tree("abc", max_new_tokens=20, ignore_eos=True).tokens == want


@pytest.mark.parametrize("text", ["", "{}", '{"prompt": ""}', "no JSON"])
def test_prompts_that_are_none_are_refused(tiny, tmp_path, text, capsys) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    assert profile(tiny, path, tmp_path / "out.json", "ssm") == 2
    assert "--prompts" in capsys.readouterr().err
