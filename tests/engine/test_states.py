"""What a pass hands out beside its logits is what its head multiplied, whatever runs the LLM."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specinfer.graphs import Buckets, Graphs, Run
from specinfer.lean import load_llm
from specinfer.lean.llm import LeanLM
from specinfer.llm import CausalLM
from specinfer.offload import load_offloaded
from specinfer.tree_attention import ForwardPlan, Segment, plan

CPU = torch.device("cpu")
LLMS: dict[str, Callable[[Path], CausalLM]] = {
    "native int8": lambda folder: load_llm(folder, "auto", CPU, "int8"),
    "native bf16": lambda folder: load_llm(folder, "bfloat16", CPU),
    "lean": lambda folder: load_llm(folder, "float32", CPU),
    "transformers": lambda folder: CausalLM.load(folder, "float32", CPU),
    "transformers bf16": lambda folder: CausalLM.load(folder, "bfloat16", CPU),
    "off-loaded": lambda folder: load_offloaded(folder, "float32", CPU, "disk", slots=1),
    "captured": lambda folder: captured(CausalLM.load(folder, "float32", CPU)),
}


def captured(llm: CausalLM) -> CausalLM:
    """Have a replay run the pass again on the same buffers, as tests of graphs do."""

    def eagerly(run: Run) -> Run:
        run()
        return run

    class Cached(CausalLM):
        def new_cache(self, *, tokens: int, page_size: int):  # type: ignore[no-untyped-def]
            cache = super().new_cache(tokens=tokens, page_size=page_size)
            buckets = Buckets.up_to(segments=4, pages=cache.pages, page_size=page_size)
            self.graphs = Graphs(self, cache, buckets, eagerly, states=self.state_width)
            return cache

    llm.__class__ = Cached
    return llm


def two_trees(llm: CausalLM) -> ForwardPlan:
    cache = llm.new_cache(tokens=64, page_size=4)
    sequences = [cache.open([]), cache.open([])]
    for sequence in sequences:
        cache.reserve(sequence, 5)
    trees = [([5, 9, 7, 3, 3], [-1, 0, 0, 1, 2], [0, 4, 2]), ([8, 1], [-1, 0], [1])]
    return plan(cache, [Segment(s, *tree) for s, tree in zip(sequences, trees, strict=True)])


def head(llm: CausalLM) -> Callable[[Tensor], Tensor]:
    return llm.decoder.head if isinstance(llm, LeanLM) else llm.model.get_output_embeddings()


@pytest.mark.parametrize("kind", ["llama", "qwen2", "opt"])
@pytest.mark.parametrize("how", LLMS)
def test_states_are_what_the_head_multiplies(tiny, kind: str, how: str) -> None:
    llm = LLMS[how](tiny[kind])
    assert llm.state_width == 64
    logits, states = llm.forward_with_states(two_trees(llm))
    assert states.shape == (4, 64) and states.dtype == logits.dtype == torch.float32
    assert logits.shape == (4, 97)
    with torch.inference_mode():
        again = head(llm)(states.to(llm.dtype)).float()
    close = 0.1 if llm.dtype == torch.bfloat16 else 1e-3
    torch.testing.assert_close(logits, again, rtol=close, atol=close)
    torch.testing.assert_close(logits, llm.forward(two_trees(llm)), rtol=0, atol=close)
    llm.close()


def test_a_class_that_names_no_head_hands_out_nothing(tiny, monkeypatch) -> None:
    llm = CausalLM.load(tiny["llama"], "float32", CPU)
    monkeypatch.setattr(type(llm.model), "get_output_embeddings", lambda _: None)
    assert llm.state_width is None
