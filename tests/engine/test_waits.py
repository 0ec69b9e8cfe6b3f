"""How often a step waits for the device: each such call empties a GPU's queue of work."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.testing.toy import a_request

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
    """Count outside of forward passes, whose plans a CPU's kernels look at and a GPU's do not."""
    from specinfer.llm import CausalLM

    mode, forward = Reads(), CausalLM.forward

    def uncounted(self: CausalLM, laid_out: Any) -> torch.Tensor:
        mode.off = True
        try:
            return forward(self, laid_out)
        finally:
            mode.off = False

    monkeypatch.setattr(CausalLM, "forward", uncounted)
    return mode


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_greedy_step_reads_the_device_once_and_once_a_level(
    tiny: dict[str, Path], reads: Reads, count: int, depth: int
) -> None:
    config = EngineConfig(
        model=tiny["llama"],
        ssms=(tiny["ssm"],) if depth else (),
        tree=TreeShape((2,) * max(depth, 1)),
        dtype="float32",
        adaptive=False,
        page_size=4,
    )
    engine = Engine.load(config)
    scheduler = engine._scheduler
    engine.close()  # its thread; the steps are taken here
    for i in range(count):
        request: Request = a_request([1 + i, 2, 3, 1 + i, 2, 3, 1 + i, 2])
        request.params = SamplingParams(max_new_tokens=50, ignore_eos=True)
        scheduler.add(request)
    scheduler.step()
    with reads:
        scheduler.step()
    # The rows, and each level's tokens and shares: on a GPU these two are one transfer.
    assert reads.counts == Counter(numpy=1 + depth, tolist=depth)
