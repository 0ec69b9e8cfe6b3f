"""How often a step waits for the device: each such call empties a GPU's queue of work."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.overrides import TorchFunctionMode

from specinfer import speculate
from specinfer.config import EngineConfig, TreeShape
from specinfer.draft import growth, level
from specinfer.engine import Engine
from specinfer.llm import CausalLM
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.testing.toy import a_request
from specinfer.verify import together

# numpy is how a CPU reads its own memory, where a GPU's results come by one tolist.
READS = ("tolist", "numpy", "item", "__bool__", "__int__", "__float__", "__index__", "cpu", "equal")


class Reads(TorchFunctionMode):
    """Counts what brings a tensor's contents to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.off = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.off and getattr(func, "__name__", "") in READS:
            self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Count outside of forward passes and kernels, which a CPU looks into and a GPU does not."""
    mode = Reads()

    def uncounted(function: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*given: Any, **named: Any) -> Any:
            mode.off = True
            try:
                return function(*given, **named)
            finally:
                mode.off = False

        return instead

    for place, name in [
        (CausalLM, "forward"),
        *((level, name) for name in ("warp_rows", "draw_tokens")),
        *((together, name) for name in ("warp_rows", "draw_tokens", "walk_trees")),
    ]:
        monkeypatch.setattr(place, name, uncounted(getattr(place, name)))
    return mode


def scheduled(llm: Path, ssm: Path, depth: int, kinds: list[SamplingParams]) -> Scheduler:
    """Return a scheduler whose requests have taken their first step."""
    config = EngineConfig(
        model=llm,
        ssms=(ssm,) if depth else (),
        tree=TreeShape((2,) * max(depth, 1)),
        dtype="float32",
        adaptive=False,
        page_size=4,
    )
    engine = Engine.load(config)
    scheduler = engine._scheduler
    engine.close()  # its thread; the steps are taken here
    for i, params in enumerate(kinds):
        request: Request = a_request([1 + i, 2, 3, 1 + i, 2, 3, 1 + i, 2])
        request.params = replace(params, max_new_tokens=50, ignore_eos=True)
        scheduler.add(request)
    scheduler.step()
    return scheduler


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_greedy_step_reads_the_device_once_and_once_a_level(
    tiny: dict[str, Path], reads: Reads, count: int, depth: int
) -> None:
    scheduler = scheduled(tiny["llama"], tiny["ssm"], depth, [SamplingParams()] * count)
    with reads:
        scheduler.step()
    # The rows, and each level's tokens and shares: on a GPU these two are one transfer.
    assert reads.counts == Counter(numpy=1 + depth, tolist=depth)


MIXED = [
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.0, top_k=9, top_p=0.9, min_p=0.01),
    SamplingParams(),
    SamplingParams(temperature=1.0, repetition_penalty=1.3, logit_bias={3: 1.0}),
    SamplingParams(frequency_penalty=0.5),
]


@pytest.mark.parametrize("kinds", [MIXED[:1], MIXED], ids=["one", "mixed"])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_so_does_a_sampled_one_whatever_the_batch(
    tiny: dict[str, Path],
    reads: Reads,
    monkeypatch: pytest.MonkeyPatch,
    kinds: list[SamplingParams],
    depth: int,
) -> None:
    for place in (growth, speculate):
        monkeypatch.setattr(place, "samples_together", lambda device: True)
    scheduler = scheduled(tiny["llama"], tiny["ssm"], depth, kinds)
    with reads:
        scheduler.step()
    del reads.counts["numpy"]  # how arrays on the host are laid out for sending, too
    assert reads.counts == Counter(cpu=1 + depth)


def test_waiting_for_each_request_is_caught(tiny: dict[str, Path], reads: Reads) -> None:
    """One by one a step reads the device again and again, if not always by the same call."""
    scheduler = scheduled(tiny["llama"], tiny["ssm"], 3, MIXED)
    with reads:
        scheduler.step()
    assert reads.counts.total() > 20
