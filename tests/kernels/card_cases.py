"""The Triton kernels under the engine and in the GPU suite, on a pretend card.

Not collected by itself: test_triton_interpreted.py runs it in a process of its own.
"""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.testing.ask import Asker
from specinfer.testing.card import Card, CardError
from specinfer.testing.toy import write_tiny_model
from specinfer_kernels import commit_kv

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROOM = {"max_new_tokens": 6, "ignore_eos": True}
REQUESTS = [ROOM, ROOM | {"temperature": 0.9, "seed": 1}, ROOM | {"temperature": 0.9, "top_k": 9}]


def answers(config: EngineConfig) -> list[list[int]]:
    engine = Engine.load(config)
    asker = Asker(engine)
    prompts = [[1 + i, 2, 3 + i, 4, 2, 3] for i in range(len(REQUESTS))]
    asked = [
        asker.submit(prompt, **params | {"seed": 3})[1]
        for prompt, params in zip(prompts, REQUESTS, strict=True)
    ]
    found = [asker.gather(deltas) for deltas in asked]
    engine.close()
    assert not [answer.last.error for answer in found if answer.last.error]
    return [answer.tokens for answer in found]


def test_the_engine_answers_with_them_as_a_cpu_does(tmp_path: Path) -> None:
    """Captured, replayed, with trees of SSMs, greedy and sampled."""
    llm, ssm = (write_tiny_model(tmp_path / str(n), "llama", seed=n, context=64) for n in range(2))
    config = EngineConfig(
        model=llm,
        ssms=(ssm,),
        tree=TreeShape((2, 1)),
        dtype="float32",
        adaptive=False,
        device="cpu",
        max_batch=2,
        cache_tokens=128,
    )
    expected = answers(config)
    with Card():
        assert answers(replace(config, device="cuda", cuda_graphs="on")) == expected


def test_a_kernel_takes_no_pointer_of_the_hosts() -> None:
    with Card():
        kv = torch.zeros(1, 2, 8, 2, 16, device="cuda")
        with pytest.raises(CardError, match="Pointer argument"):
            commit_kv(kv, torch.tensor([1]), torch.tensor([0]))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_gpu_suite_runs_as_on_a_card(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of its code for a card; FlexAttention alone, which is compiled, is left out."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu_rig
    import gpu_suite

    small = gpu_rig.shape(97, 32, 48, 1, 2)
    sizes = {"llm": small, "ssm": small, "checks": gpu_rig.DRY.checks[:1], "rows": (1, 3)}
    sizes |= {"tree": TreeShape((2,)), "answer": 2}
    rig = replace(gpu_rig.DRY, device="cuda", dtype=torch.bfloat16, **sizes)
    monkeypatch.setattr(gpu_rig, "CARD", rig)
    with Card() as card:
        assert list(gpu_suite.missing(dry=False)) == []
        assert gpu_suite.suite(False, time.monotonic() + 600) == 0
        assert card.count()["wait"] > 0
    told = capsys.readouterr()
    assert "pretend card" in told.out
    assert "trees, graphs, both" in told.out
    assert told.out.count("check ok") > len(rig.checks) * 2 * 3
    assert "FAILS" not in told.out
    left_out = Counter(line.split(":")[1] for line in told.err.splitlines() if "left out" in line)
    assert set(left_out) == {" check of flex", " flex"}
