"""An LLM whose layers come from disk or memory for every pass says what a resident one says."""

import shutil
from pathlib import Path

import pytest
import torch

from specinfer.config import EngineConfig, TreeShape
from specinfer.engine import Engine
from specinfer.errors import ConfigError, ModelFolderError
from specinfer.llm import CausalLM
from specinfer.offload import load_offloaded
from specinfer.tree_attention import chain, plan

CPU = torch.device("cpu")
PROMPTS = [[5, 6, 7, 5, 6, 7, 5], list(range(20, 80)), [31, 7, 31, 7, 31]]


def logits(llm: CausalLM, tokens: list[int]) -> torch.Tensor:
    cache = llm.new_cache(tokens=64, page_size=4)
    sequence = cache.open([])
    cache.reserve(sequence, len(tokens))
    return llm.forward(plan(cache, [chain(sequence, tokens, wanted=True)]))


@pytest.mark.parametrize("slots", [1, 3, 5])
@pytest.mark.parametrize("where", ["disk", "cpu"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "opt"])
def test_logits_are_those_of_a_resident_model(tiny, kind, where, slots) -> None:
    resident = CausalLM.load(tiny[kind], "float32", CPU)
    off = load_offloaded(tiny[kind], "float32", CPU, where, slots=slots)
    for tokens in ([1, 2, 3], [9], list(range(40))):
        # Not equal to the bit: kernels look at how memory is aligned.
        torch.testing.assert_close(logits(off, tokens), logits(resident, tokens))
    off.close()


def test_another_type_is_computed_in_than_stored(tiny) -> None:
    resident = CausalLM.load(tiny["llama"], "bfloat16", CPU)
    off = load_offloaded(tiny["llama"], "bfloat16", CPU, "disk", slots=2)
    assert off.dtype == torch.bfloat16
    torch.testing.assert_close(logits(off, [1, 2, 3]), logits(resident, [1, 2, 3]))
    off.close()


@pytest.mark.parametrize("adaptive", [False, True])
def test_trees_over_an_offloaded_llm_are_lossless(tiny, ask, adaptive) -> None:
    plain = ask(lookup=False)
    settings = {"ssms": (tiny["ssm"],), "tree": TreeShape((2, 2, 1)), "prefill_rows": 32}
    off = ask(offload="disk", offload_layers=2, adaptive=adaptive, **settings)
    waiting = [off.submit(prompt, max_new_tokens=20)[1] for prompt in PROMPTS]
    told = [off.gather(deltas).tokens for deltas in waiting]
    assert told == [plain(prompt, max_new_tokens=20).tokens for prompt in PROMPTS]


def test_no_layer_stays(tiny) -> None:
    off = load_offloaded(tiny["llama"], "float32", CPU, "disk", slots=1)
    logits(off, [1, 2, 3])
    first, second = off.model.model.layers
    rooms = [layer.mlp.up_proj.weight.untyped_storage().data_ptr() for layer in (first, second)]
    assert rooms[0] == rooms[1]
    off.close()


def test_weights_that_become_unreadable_end_the_pass(tiny, monkeypatch) -> None:
    off = load_offloaded(tiny["llama"], "float32", CPU, "disk", slots=1)
    logits(off, [1])
    monkeypatch.setattr("os.preadv", lambda *_: 0)
    with pytest.raises(OSError, match="could not be read"):
        for _ in range(3):
            logits(off, [1])
    off.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"offload": "tape"}, "offload: must be one of"),
        ({"offload": "disk", "offload_layers": 0}, "offload_layers: must be at least 1"),
        ({"offload": "disk", "tensor_parallel": 2}, "either off-loaded or shared"),
        ({"offload": "cpu", "device": "cpu"}, "offload: cpu keeps weights in host memory"),
    ],
)
def test_what_cannot_be_is_refused(tiny, settings, said) -> None:
    with pytest.raises(ConfigError, match=said):
        Engine.load(EngineConfig(model=tiny["llama"], **settings))


def test_weights_under_other_names_are_refused(tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny["llama"], tmp_path / "llama"))
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b"layers.1.mlp.up", b"layers.1.mlp.UP"))
    with pytest.raises(ModelFolderError, match="hold no model.layers.1.mlp.up_proj.weight"):
        load_offloaded(folder, "float32", CPU, "disk", slots=1)
