"""An SSM cut from its LLM: a few of its layers, its embedding, its head for the frequent tokens.

Embedding and head stay the LLM's own and are neither trained nor stored; what is learnt are the
layers and the last norm, and how the head's few thousand tokens follow from so few layers.
"""

import copy
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from specinfer.train.errors import TrainError
from specinfer.train.shards import Corpus

LAYER = re.compile(r"(?<=\blayers\.)\d+(?=\.)")


class Student(torch.nn.Module):
    """The trainable part, and logits over a draft vocabulary."""

    head: Tensor
    vocabulary: Tensor

    def __init__(self, body: PreTrainedModel, head: Tensor, vocabulary: Tensor) -> None:
        """head [D, H] are the LLM's rows for vocabulary [D], ascending LLM ids."""
        super().__init__()
        assert head.shape[0] == len(vocabulary)
        self.body = body
        self.register_buffer("head", head, persistent=False)
        self.register_buffer("vocabulary", vocabulary, persistent=False)
        body.get_input_embeddings().requires_grad_(False)

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the last states [B, T, H] of right-padded tokens [B, T]."""
        states: Tensor = self.body(input_ids=tokens, use_cache=False).last_hidden_state
        return states

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Return the log-laws [M, D] at the places [M] of the flattened tokens [B, T]."""
        rows = self.hidden(tokens).flatten(0, 1)[places]
        logits = torch.nn.functional.linear(rows, self.head.to(rows.dtype))
        return logits.float().log_softmax(-1)

    def learnt(self) -> dict[str, Tensor]:
        """Return what training changes, by name."""
        return {
            name: value.data for name, value in self.body.named_parameters() if value.requires_grad
        }

    def learn(self, values: dict[str, Tensor]) -> None:
        """Take over what another student of the same shape has learnt."""
        for name, value in self.learnt().items():
            value.copy_(values[name])


def cut(llm: PreTrainedModel, layers: Sequence[int], vocabulary: Tensor) -> Student:
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
    return Student(small.base_model.to(device), head.to(device), vocabulary)


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


def frequent(corpus: Corpus, size: int, always: Sequence[int] = ()) -> Tensor:
    """Return the draft vocabulary: the tokens of most probability in the laws, [D] ascending ids.

    The tokens of `always` (ends of answers) are in it whatever the counts.
    """
    mass = torch.zeros(int(corpus.ids.max()) + 1 + max(always, default=0))
    scored = corpus.kind > 0
    mass.index_add_(0, corpus.ids[scored].flatten().long(), corpus.probs[scored].flatten().float())
    mass[list(always)] = torch.inf
    return mass.topk(min(size, int((mass > 0).sum()))).indices.sort().values
