"""The LLM's last hidden states at every place of the shards, which recurrent SSMs start from.

They are not in the shards, being a hundred times as large; reading the text again costs the LLM
a hundredth of writing it.  A run that was killed goes on with the first part that is missing.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from specinfer.kv_cache import KVCache
from specinfer.llm import CausalLM
from specinfer.train.ranks import Ranks
from specinfer.train.shards import Corpus
from specinfer.tree_attention import Segment, plan

PART = 256  # sequences a file
ROWS = 256  # tokens read in one pass: more takes as long a token
PAGE = 16


def keep(
    corpus: Corpus, llm: CausalLM, folder: Path, ranks: Ranks, say: Callable[[int, int], None]
) -> None:
    """Read this rank's share of what folder has no states of; say(done, of) sequences."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = list(range(0, len(corpus), PART))
    for number in ranks.share(range(len(parts))):
        sequences = range(parts[number], min(parts[number] + PART, len(corpus)))
        path = _path(folder, number)
        rows = int(corpus.offsets[sequences.stop] - corpus.offsets[sequences.start])
        if not _holds(path, rows):
            part = path.with_suffix(".part")
            save_file({"states": _read(llm, corpus, sequences)}, part)
            part.replace(path)
        say(sequences.stop, len(corpus))


def stored(corpus: Corpus, folder: Path) -> Corpus:
    """Return the corpus with the states that are in folder."""
    paths = [_path(folder, number) for number in range(-(-len(corpus) // PART))]
    return replace(corpus, states=torch.cat([load_file(path)["states"] for path in paths]))


def _holds(path: Path, rows: int) -> bool:
    """Tell whether a file is there and has so many states: there may be more shards than before."""
    if not path.is_file():
        return False
    with safe_open(path, "pt") as file:
        return int(file.get_slice("states").get_shape()[0]) == rows


@torch.inference_mode()
def _read(llm: CausalLM, corpus: Corpus, sequences: range) -> Tensor:
    """Run the LLM over some sequences; return the states of all their places, [M, H] float16."""
    starts = corpus.offsets.tolist()
    texts = [corpus.tokens[starts[s] : starts[s + 1]].tolist() for s in sequences]
    room = ROWS + max(map(len, texts))
    cache = llm.new_cache(tokens=room + PAGE * len(texts), page_size=PAGE)
    states: list[Tensor] = []
    group: list[list[int]] = []
    for text in texts:
        group.append(text)
        if sum(map(len, group)) >= ROWS or text is texts[-1]:
            states.append(_pass(llm, cache, group))
            group = []
    return torch.cat(states)


def _pass(llm: CausalLM, cache: KVCache, texts: list[list[int]]) -> Tensor:
    segments = []
    for text in texts:
        sequence = cache.open([])
        cache.reserve(sequence, len(text))
        segments.append(Segment(sequence, text, range(-1, len(text) - 1), range(len(text))))
    _, states = llm.forward_with_states(plan(cache, segments))
    for segment in segments:
        cache.release(segment.sequence)
    return states.half().cpu()


def _path(folder: Path, number: int) -> Path:
    return folder / f"states-{number:05d}.safetensors"
