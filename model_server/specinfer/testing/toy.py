"""Toy models: laws from a table for proofs, tiny random transformers for runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specinfer.choices import SeededChoices
from specinfer.request import Request
from specinfer.sampling import SamplingParams
from specinfer.text import TextStream

TableModel = Callable[[tuple[int, ...]], Tensor]  # context -> law [V], float64

TINY = {
    "llama": {"num_key_value_heads": 2, "intermediate_size": 96},
    "qwen2": {"num_key_value_heads": 2, "intermediate_size": 96},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
}


def table_model(vocab: int, seed: int) -> TableModel:
    """Return a language model whose every row is drawn once, from a seed; [V] float64."""
    generator = torch.Generator().manual_seed(seed)
    rows: dict[tuple[int, ...], Tensor] = {}

    def law(context: tuple[int, ...]) -> Tensor:
        if context not in rows:
            weights = torch.rand(vocab, generator=generator, dtype=torch.float64) ** 2
            rows[context] = weights / weights.sum()
        return rows[context]

    return law


def a_request(tokens: list[int], room: int = 100) -> Request:
    """Return a greedy request that nobody listens to, for drafters to look at."""
    return Request(
        prompt=tuple(tokens),
        params=SamplingParams(max_new_tokens=room),
        sink=lambda delta: None,
        choices=SeededChoices(0),
        text=TextStream(lambda ids: ""),
        eos=frozenset(),
        limit=10_000,
    )


def write_tiny_model(
    folder: Path, kind: str, *, seed: int = 0, vocab: int = 97, context: int = 256
) -> Path:
    """Write a random two-layer model of an architecture in TINY, with a tokenizer, to folder.

    The tokenizer knows one byte-like character a token, ids 0 … vocab-1; id 0 ends an answer.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        kind,
        vocab_size=vocab,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=context,
        initializer_range=0.3,  # the usual 0.02 makes rows too flat to tell right from wrong
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        **TINY[kind],
    )
    model: Any = AutoModelForCausalLM
    model.from_config(config).save_pretrained(folder)
    write_tokenizer(folder, vocab)
    return folder


def write_tiny_recurrent(
    folder: Path,
    llm: Path,
    vocabulary: Tensor,
    *,
    seed: int = 0,
    inner: int = 96,
    blocks: int = 2,
    scale: float = 0.3,
) -> Path:
    """Write a recurrent SSM of random weights for the LLM in a folder."""
    from transformers import AutoModelForCausalLM

    from specinfer.ssm import save_recurrent

    auto: Any = AutoModelForCausalLM
    embedding = auto.from_pretrained(llm, dtype=torch.float32).get_input_embeddings().weight
    width, random = embedding.shape[1], torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("state_norm", "token_norm", "norm"), (width,)),
        "inward": (width, 2 * width),
    }
    for block in map("blocks.{}".format, range(blocks)):
        shapes[f"{block}.norm"] = (width,)
        shapes[f"{block}.gate_proj"] = shapes[f"{block}.up_proj"] = (inner, width)
        shapes[f"{block}.down_proj"] = (width, inner)
    learnt = {
        f"{name}.weight": scale * torch.randn(shape, generator=random) + (len(shape) == 1)
        for name, shape in shapes.items()
    }
    save_recurrent(folder, learnt, vocabulary, embedding, 1e-5, {"licence": "none"})
    return folder


def write_tokenizer(folder: Path, vocab: int) -> None:
    """Write a tokenizer of single characters, `<end>` and then from `!` upwards."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    table = {"<end>": 0} | {chr(ord(" ") + i): i for i in range(1, vocab)}
    tokenizer = Tokenizer(models.WordLevel(table, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    # Grammars are compiled for decoders that tell how bytes are spelt.
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<end>",
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
