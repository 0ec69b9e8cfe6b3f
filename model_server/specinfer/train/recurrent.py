"""An SSM that goes on from the LLM's last hidden state, one token at a time.

It sees what the LLM has made of the whole text and need not read it again; the idea is that of
recurrent drafters (arXiv 2403.09919), Hydra heads (2402.05109) and the MLP speculator (2404.19124).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear, ModuleList, RMSNorm
from torch.nn.functional import silu
from transformers import PreTrainedModel

from specinfer.ssm import save_recurrent
from specinfer.train.batches import Batch, Targets
from specinfer.train.shards import Corpus
from specinfer.train.student import Student

LEVELS = 4  # tokens that a draft goes on for in training; deeper ones follow from the recurrence
EPS = 1e-5  # of the norms, where the LLM's are of another kind


class Gated(torch.nn.Module):
    """What a block adds to a state: a gated SiLU behind a norm, as between an LLM's attentions."""

    def __init__(self, width: int, inner: int, eps: float) -> None:
        super().__init__()
        self.norm = RMSNorm(width, eps)
        self.gate_proj = Linear(width, inner, bias=False)
        self.up_proj = Linear(width, inner, bias=False)
        self.down_proj = Linear(inner, width, bias=False)

    def forward(self, state: Tensor) -> Tensor:
        rows = self.norm(state)
        added: Tensor = self.down_proj(silu(self.gate_proj(rows)) * self.up_proj(rows))
        return added


class Recurrent(Student):
    """Makes the state behind a token of the state before it."""

    pace = 3.0  # it begins with nothing: 100 steps at 3e-3 teach as much as 150 at 1e-3
    embedding: Tensor

    def __init__(
        self,
        embedding: Tensor,
        head: Tensor,
        vocabulary: Tensor,
        blocks: int,
        inner: int,
        eps: float,
    ) -> None:
        """embedding [V, H] is the LLM's; inner is the width inside a block."""
        super().__init__(head, vocabulary)
        width = embedding.shape[1]
        self.register_buffer("embedding", embedding, persistent=False)
        self.state_norm, self.token_norm = RMSNorm(width, eps), RMSNorm(width, eps)
        self.inward = Linear(2 * width, width, bias=False)
        self.blocks = ModuleList(Gated(width, inner, eps) for _ in range(blocks))
        self.norm = RMSNorm(width, eps)
        self.eps = eps

    def step(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Return the states [M, H] behind tokens [M], of those before them, [M, H]."""
        token = self.token_norm(self.embedding[tokens])
        states = states + self.inward(torch.cat([self.state_norm(states), token], 1))
        for block in self.blocks:
            states = states + block(states)
        return states

    def forward(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Return the log-laws [M * L, D] behind each of the tokens [M, L], of states [M, H]."""
        rows = []
        for level in range(tokens.shape[1]):
            states = self.step(states, tokens[:, level])
            rows.append(self.norm(states))
        return self.log_laws(torch.stack(rows, 1).flatten(0, 1))

    def lesson(self, data: Targets, sequences: Sequence[int], step: int) -> Batch:
        """Begin at every so-many-th place, at other ones from step to step."""
        offsets, first = data.corpus.offsets.tolist(), step % LEVELS
        begun = [torch.arange(offsets[s] + first, offsets[s + 1] - 1, LEVELS) for s in sequences]
        ends = [offsets[s + 1] for s in sequences]
        end = torch.tensor(ends).repeat_interleave(torch.tensor([len(own) for own in begun]))
        at = torch.cat(begun)
        places = at[:, None] + torch.arange(1, LEVELS + 1)
        inside = places < end[:, None]
        places = places.minimum(end[:, None] - 1)
        inputs = (_states(data.corpus, at), data.corpus.tokens[places].long())
        batch = data.batch(inputs, places.flatten())
        return replace(batch, weights=batch.weights * inside.flatten())

    def laws(self, corpus: Corpus, sequences: Sequence[int], depth: int) -> Iterator[Tensor]:
        """Begin at every place.  Where no draft can have begun a law means nothing."""
        offsets, device = corpus.offsets.tolist(), self.head.device
        at = torch.cat([torch.arange(offsets[s], offsets[s + 1]) for s in sequences])
        states = _states(corpus, at).to(device)
        for level in range(1, depth + 1):
            tokens = corpus.tokens[(at + level).clamp(max=len(corpus.tokens) - 1)].long()
            states = self.step(states, tokens.to(device))
            yield self.log_laws(self.norm(states)).roll(level, 0)

    def save(self, folder: Path, embedding: Tensor, licence: str) -> None:
        about = {"licence": licence}
        save_recurrent(folder, self.learnt(), self.vocabulary, embedding, self.eps, about)


def _states(corpus: Corpus, places: Tensor) -> Tensor:
    assert corpus.states is not None, "the corpus was read without states"
    return corpus.states[places].float()


def begun(llm: PreTrainedModel, blocks: int, vocabulary: Tensor, seed: int) -> Recurrent:
    """Return a student of random weights with so many blocks, each as wide as one of the LLM's."""
    lent: Any = llm
    config: Any = llm.config
    embedding = lent.get_input_embeddings().weight.detach().float()
    head = lent.get_output_embeddings().weight.detach()[vocabulary.cpu()].float()
    device = vocabulary.device
    inner = getattr(config, "intermediate_size", None) or 4 * embedding.shape[1]
    eps = getattr(config, "rms_norm_eps", EPS)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        student = Recurrent(embedding, head, vocabulary.cpu(), blocks=blocks, inner=inner, eps=eps)
    return student.to(device)
