"""Numbers of ranks that cannot be are refused with the reason."""

import pytest

from specinfer.config import EngineConfig
from specinfer.engine import Engine
from specinfer.errors import ConfigError
from specinfer.parallel.check import check_split
from specinfer.parallel.launch import Nodes, torchrun
from specinfer.parallel.load import take_place


def config(folder, ranks, **more):
    return EngineConfig(model=folder, tensor_parallel=ranks, **more)


@pytest.mark.parametrize(
    ("kind", "ranks", "more", "said"),
    [
        ("llama", 3, {}, "3 ranks cannot share 4 query and 2 key/value heads; possible are 1, 2"),
        ("llama", 4, {}, "possible are 1, 2"),
        ("opt", 2, {}, "no plan that splits the heads of opt"),
        ("llama", 2, {"device": "cuda"}, r"2 ranks, one a GPU, on \d GPUs"),
    ],
)
def test_an_impossible_split_is_refused(tiny, monkeypatch, kind, ranks, more, said):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ConfigError, match=said):
        check_split(config(tiny[kind], ranks, **more), ranks)


def test_a_possible_split_is_not(tiny):
    check_split(config(tiny["llama"], 2, device="cpu"), 2)


def test_fewer_than_one_rank_is_refused(tiny):
    with pytest.raises(ConfigError, match="tensor_parallel: must be at least 1"):
        config(tiny["llama"], 0)


def test_a_quantized_llm_is_not_shared(tiny):
    with pytest.raises(ConfigError, match="tensor_parallel: goes with quantization none"):
        config(tiny["llama"], 2, quantization="int8")


def test_one_process_does_not_pretend_to_be_several(tiny):
    with pytest.raises(ConfigError, match="tensor_parallel"):
        Engine.load(config(tiny["llama"], 2))


def test_ranks_are_shared_out_among_the_nodes_that_torchrun_is_told_of():
    nodes = Nodes.named_in({"PET_NNODES": "2", "PET_NODE_RANK": "1"})
    assert nodes == Nodes(2, 1)
    command = torchrun(8, nodes)
    assert command[command.index("--nproc-per-node") + 1] == "4"
    assert "--standalone" not in command
    with pytest.raises(ConfigError, match="3 ranks do not divide by 2 nodes"):
        nodes.ranks_here(3)
    with pytest.raises(ConfigError, match="PET_NNODES"):
        Nodes.named_in({"PET_NNODES": "1:2"})


def test_a_server_refuses_before_it_listens_and_other_nodes_become_ranks(tiny, monkeypatch):
    with pytest.raises(ConfigError, match="3 ranks cannot share"):
        take_place(config(tiny["llama"], 3, device="cpu"), {})
    became = []
    monkeypatch.setattr("os.execve", lambda *how: became.append(how))
    node = {"PET_NNODES": "2", "PET_NODE_RANK": "1"}
    take_place(config(tiny["llama"], 2, device="cpu"), node)
    ((program, command, environ),) = became
    assert program == command[0]
    assert command[-1] == "specinfer.parallel"  # without an address: it never takes requests
    assert environ["CUDA_VISIBLE_DEVICES"] == ""
