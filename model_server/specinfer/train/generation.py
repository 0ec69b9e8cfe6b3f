"""The data step: the LLM answers prompts in batches, and its laws are kept in shards.

A shard is a function of the seed and its number, so a run that was killed goes on with the first
shard that is missing.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from specinfer.choices import inverted_rows
from specinfer.kv_cache import CachedSequence, Commit, KVCache
from specinfer.llm import CausalLM
from specinfer.train.prompts import Frame, Prompt
from specinfer.train.shards import ANSWER, PROMPT, UNSCORED, Corpus, write_shard
from specinfer.tree_attention import Segment, plan

PAGE = 16
STARTING = 8  # prompts read in one pass at most: each of their tokens has a law over all of V


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """How much is generated, and how."""

    laws: int = 200_000  # of answers' and prompts' tokens, in all shards
    shard: int = 256  # prompts a shard
    together: int = 64  # of them answered at once, the next one as soon as one is done
    answer: int = 128  # tokens of an answer at most
    turn: int = 72  # tokens of a turn that the LLM writes itself; longer ones are dropped
    prompt: int = 220  # tokens of a given turn; longer ones are skipped
    greedy: float = 0.75  # share of answers that take the likeliest token
    keep: int = 16  # likeliest tokens of a law
    seed: int = 0


@dataclass(slots=True, eq=False)
class _Dialogue:
    """One sequence as it grows; what is forced is the template's."""

    tokens: list[int]
    greedy: bool
    start: int  # where the user's turn begins
    spoken: int | None  # where the answer begins, once it is known
    sequence: CachedSequence
    forced: list[int] = field(default_factory=list)
    ids: list[Tensor] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)
    over: bool = False

    def take(self, token: int, frame: Frame, config: DataConfig) -> None:
        """Go on with the token that was chosen, or with the template's."""
        if self.forced:
            self._add_forced()
        elif self.spoken is None and token in frame.ends:
            self.forced = list(frame.after)
            self._add_forced()
        elif token in frame.ends or self._full(config):
            self.over = True
        else:
            self.tokens.append(token)

    def _add_forced(self) -> None:
        self.tokens.append(self.forced.pop(0))
        if not self.forced:
            self.spoken = len(self.tokens)

    def _full(self, config: DataConfig) -> bool:
        if self.spoken is None:
            return len(self.tokens) - self.start >= config.turn
        return len(self.tokens) - self.spoken >= config.answer

    def kinds(self) -> list[int]:
        """Return what the law at each place is about."""
        assert self.spoken is not None
        unscored = max(0, self.start - 1)
        prompt = self.spoken - 1 - unscored
        answer = len(self.tokens) - self.spoken + 1
        return [UNSCORED] * unscored + [PROMPT] * prompt + [ANSWER] * answer


def generate(
    llm: CausalLM,
    frame: Frame,
    prompts: Iterator[Prompt],
    folder: Path,
    config: DataConfig,
    say: Callable[[int], None],
) -> None:
    """Write shards until there are as many laws as wanted; say(laws) after each shard."""
    folder.mkdir(parents=True, exist_ok=True)
    number = laws = 0
    while laws < config.laws:
        batch = list(islice(_fitting(prompts, frame, config), config.shard))
        path = folder / f"laws-{number:05d}.safetensors"
        if not path.is_file():
            write_shard(path, converse(llm, frame, batch, config, config.seed * 100_003 + number))
        laws += _laws(path)
        number += 1
        say(laws)


def _laws(path: Path) -> int:
    from safetensors.torch import load_file

    return int((load_file(path)["kind"] != UNSCORED).sum())


def _fitting(prompts: Iterator[Prompt], frame: Frame, config: DataConfig) -> Iterator[Prompt]:
    """Leave out turns that are too long, and those that would leave nothing to run."""
    room = range(0 if frame.before else 1, config.prompt + 1)
    return (p for p in prompts if len(frame.encode(p.text)) in room)


@torch.inference_mode()
def converse(
    llm: CausalLM, frame: Frame, prompts: list[Prompt], config: DataConfig, seed: int
) -> Corpus:
    """Have all prompts finished and answered; return what was said and the laws."""
    longest = len(frame.before) + len(frame.after) + config.prompt + config.turn + config.answer
    cache = llm.new_cache(tokens=config.together * (longest + PAGE), page_size=PAGE)
    choose = random.Random(seed)
    generator = torch.Generator(llm.device).manual_seed(seed)
    dialogues = [
        _begun(prompt, frame, cache, choose.random() < config.greedy) for prompt in prompts
    ]
    waiting, live = list(dialogues), list[_Dialogue]()
    while waiting or live:
        room = min(STARTING, config.together - len(live))
        live, waiting = live + waiting[:room], waiting[room:]
        _advance(llm, cache, live, frame, config, generator)
        for dialogue in (dialogue for dialogue in live if dialogue.over):
            cache.release(dialogue.sequence)
        live = [dialogue for dialogue in live if not dialogue.over]
    return _corpus([dialogue for dialogue in dialogues if dialogue.spoken is not None])


def _begun(prompt: Prompt, frame: Frame, cache: KVCache, greedy: bool) -> _Dialogue:
    tokens = frame.before + frame.encode(prompt.text)
    start, spoken = len(frame.before), None
    if prompt.finished:
        tokens = tokens + frame.after
        spoken = len(tokens)
    return _Dialogue(tokens, greedy, start, spoken, cache.open([]))


def _advance(
    llm: CausalLM,
    cache: KVCache,
    live: list[_Dialogue],
    frame: Frame,
    config: DataConfig,
    generator: torch.Generator,
) -> None:
    """Run what each dialogue has not run yet, keep the laws, and choose each next token."""
    segments = [_segment(cache, dialogue) for dialogue in live]
    laws = llm.forward(plan(cache, segments)).softmax(-1)
    cache.commit([Commit(s.sequence, range(len(s)), s.tokens) for s in segments])
    best = laws.topk(min(config.keep, laws.shape[1]))
    ends = torch.tensor([len(s.wanted) for s in segments], device=llm.device).cumsum(0)
    chosen = best.indices[ends - 1, 0]
    drawing = torch.tensor([d.spoken is None or not d.greedy for d in live], device=llm.device)
    chosen[drawing] = drawn(laws[ends[drawing] - 1], generator)
    row = 0
    for dialogue, end, token in zip(live, ends.tolist(), chosen.tolist(), strict=True):
        dialogue.ids.append(best.indices[row:end].int().cpu())
        dialogue.probs.append(best.values[row:end].half().cpu())
        dialogue.take(token, frame, config)
        row = end


def drawn(laws: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a token from each row of laws [R, V] by inverting its sums: one uniform a row.

    torch.multinomial draws V of them, which took half as long as the LLM's own int8 pass.
    """
    uniforms = torch.rand(len(laws), 1, dtype=torch.double, generator=generator, device=laws.device)
    return inverted_rows(laws, uniforms)


def _segment(cache: KVCache, dialogue: _Dialogue) -> Segment:
    done = dialogue.sequence.length
    pending = dialogue.tokens[done:]
    cache.reserve(dialogue.sequence, len(pending))
    first = max(0, dialogue.start - 1 - done)
    return Segment(
        dialogue.sequence, pending, range(-1, len(pending) - 1), range(first, len(pending))
    )


def _corpus(dialogues: list[_Dialogue]) -> Corpus:
    """Lay the finished dialogues end to end; places before the user's turn have no law."""
    lengths = [len(dialogue.tokens) for dialogue in dialogues]
    kinds = [kind for dialogue in dialogues for kind in dialogue.kinds()]
    scored = torch.tensor(kinds) != UNSCORED
    keep = dialogues[0].ids[0].shape[1]
    ids = torch.zeros(len(kinds), keep, dtype=torch.int32)
    probs = torch.zeros(len(kinds), keep, dtype=torch.float16)
    ids[scored] = torch.cat([rows for dialogue in dialogues for rows in dialogue.ids])
    probs[scored] = torch.cat([rows for dialogue in dialogues for rows in dialogue.probs])
    tokens = [token for dialogue in dialogues for token in dialogue.tokens]
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return Corpus(
        torch.tensor(tokens, dtype=torch.int32),
        offsets,
        torch.tensor(kinds, dtype=torch.uint8),
        ids,
        probs,
    )
