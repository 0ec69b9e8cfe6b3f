"""Who chooses the backend, and what is refused."""

import subprocess
import sys

import pytest
import torch

from specinfer_kernels import KernelError
from specinfer_kernels.backend import choose_backend

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_argument_beats_environment_beats_device() -> None:
    reference = {"SPECINFER_KERNELS": "reference"}
    assert choose_backend(CPU, "cpu", reference) == "cpu"
    assert choose_backend(CPU, None, reference) == "reference"
    assert choose_backend(CPU, None, {}) == "cpu"
    assert choose_backend(CUDA, None, {}) == "triton"
    assert choose_backend(CPU, "triton", {"TRITON_INTERPRET": "1"}) == "triton"


@pytest.mark.parametrize(
    ("device", "wish", "message"),
    [
        (CPU, "cuda", "unknown kernel backend 'cuda'; choose from triton, cpu, reference"),
        (CUDA, "cpu", "cannot reach tensors on cuda:0"),
        (CPU, "triton", "tensors are on cpu"),
    ],
)
def test_an_impossible_wish_is_refused(device: torch.device, wish: str, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        choose_backend(device, wish, {})


def test_a_cpu_never_imports_triton() -> None:
    program = """
import sys
from specinfer_kernels import commit_kv, plan_attention, tree_attention
from specinfer_kernels.testing import Tensors, batch_of, chain
import torch
batch = batch_of([3], [chain(2)])
given = Tensors.random(batch, 2, 1, 8, torch.float32, torch.Generator())
plan = plan_attention(batch, dtype=torch.float32)
tree_attention(given.query, given.keys, given.values, plan, scale=1.0)
commit_kv(torch.zeros(1, 2, 4, 1, 2), torch.tensor([1]), torch.tensor([0]))
assert "triton" not in sys.modules
"""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
