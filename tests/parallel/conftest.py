"""Two ranks of a tiny LLM: this process leads, a child follows."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from specinfer.testing.child import free_port
from specinfer.testing.toy import write_tiny_model, write_tiny_recurrent


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An LLM, two to draft with, and one whose heads transformers cannot split."""
    base = tmp_path_factory.mktemp("tiny")
    llama = write_tiny_model(base / "llama", "llama")
    return {
        "llama": llama,
        "recurrent": write_tiny_recurrent(base / "recurrent", llama, torch.arange(97)),
        "ssm": write_tiny_model(base / "ssm", "llama", seed=1),
        "opt": write_tiny_model(base / "opt", "opt"),
    }


@pytest.fixture(scope="module")
def group() -> "Iterator[object]":
    """Rank 0 of two."""
    if torch.cuda.is_available():
        pytest.skip("transformers would split over the GPUs of this machine")
    from specinfer.parallel.group import Group

    port = str(free_port())
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": "1"}
    roots = os.pathsep.join(["model_server", "kernels"])
    environ = os.environ | place | {"PYTHONPATH": roots, "GLOO_SOCKET_IFNAME": "lo"}
    follower = subprocess.Popen([sys.executable, "-m", "specinfer.parallel"], env=environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        group = Group.join(init_method=f"tcp://127.0.0.1:{port}", world_size=2, rank=0)
    try:
        yield group
        group.tell(None)
        group.leave()
        assert follower.wait(20) == 0
    finally:
        follower.kill()
        follower.wait()
