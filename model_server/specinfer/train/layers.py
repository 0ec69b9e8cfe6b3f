"""An SSM cut from its LLM: a few of its layers, which read all tokens as the LLM does."""

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from specinfer.ssm import save_ssm
from specinfer.train.batches import Batch, Targets
from specinfer.train.errors import TrainError
from specinfer.train.shards import Corpus
from specinfer.train.student import Student

LAYER = re.compile(r"(?<=\blayers\.)\d+(?=\.)")


class Layers(Student):
    """A few of the LLM's layers and its last norm, trained."""

    def __init__(self, body: PreTrainedModel, head: Tensor, vocabulary: Tensor, prefix: str):
        """prefix is what names in a checkpoint have before those of the body."""
        super().__init__(head, vocabulary)
        self.body = body
        self._prefix = prefix
        body.get_input_embeddings().requires_grad_(False)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Return the log-laws [M, D] at the places [M] of right-padded tokens [B, T], flattened."""
        states: Tensor = self.body(input_ids=tokens, use_cache=False).last_hidden_state
        return self.log_laws(states.flatten(0, 1)[places])

    def lesson(self, data: Targets, sequences: Sequence[int], step: int) -> Batch:
        """Take every law of the sequences that has a weight."""
        tokens, places, sources = _padded(data.corpus, sequences)
        kept = data.weights[sources] > 0
        return data.batch((tokens, places[kept]), sources[kept])

    def laws(self, corpus: Corpus, sequences: Sequence[int], depth: int) -> list[Tensor]:
        """While a draft is the LLM's own text, a law does not depend on where it began."""
        tokens, places, _ = _padded(corpus, sequences)
        device = self.head.device
        return [self(tokens.to(device), places.to(device))] * depth

    def save(self, folder: Path, embedding: Tensor, licence: str) -> None:
        learnt = {
            f"{self._prefix}.{name.removeprefix('body.')}": value
            for name, value in self.learnt().items()
        }
        about = {"licence": licence}
        save_ssm(folder, self.body.config, learnt, self.vocabulary, embedding, about)


def _padded(corpus: Corpus, sequences: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens [B, T], places [M] of all tokens in them, flattened, and in the corpus [M]."""
    starts = corpus.offsets.tolist()
    spans = [torch.arange(starts[s], starts[s + 1]) for s in sequences]
    longest = max(map(len, spans))
    tokens = torch.zeros(len(spans), longest, dtype=torch.int64)
    for row, span in enumerate(spans):
        tokens[row, : len(span)] = corpus.tokens[span]
    places = [torch.arange(len(span)) + row * longest for row, span in enumerate(spans)]
    return tokens, torch.cat(places), torch.cat(spans)


def cut(llm: PreTrainedModel, layers: Sequence[int], vocabulary: Tensor) -> Layers:
    """Return a student of the LLM's given layers; raises TrainError for layers it has not."""
    have = int(llm.config.num_hidden_layers)
    if not layers or not all(0 <= layer < have for layer in layers):
        raise TrainError(f"layers: the LLM has 0 to {have - 1}, got {list(layers)}")
    config: Any = copy.deepcopy(llm.config)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer] for layer in layers]
    auto: Any = AutoModelForCausalLM
    small = auto.from_config(config, attn_implementation="sdpa").float()
    small.load_state_dict(_renumbered(llm.state_dict(), layers))
    lent: Any = llm
    head = lent.get_output_embeddings().weight.detach()[vocabulary].float()
    device = vocabulary.device
    prefix = llm.base_model_prefix
    return Layers(small.base_model.to(device), head.to(device), vocabulary, prefix)


def _renumbered(state: dict[str, Tensor], layers: Sequence[int]) -> dict[str, Tensor]:
    """Keep the chosen layers under their new numbers, and all that is of no layer."""
    new: dict[str, Tensor] = {}
    for name, value in state.items():
        found = LAYER.search(name)
        if found is None:
            new[name] = value
            continue
        for place, layer in enumerate(layers):
            if layer == int(found[0]):
                new[LAYER.sub(str(place), name)] = value
    return new
