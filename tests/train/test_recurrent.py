"""Recurrent students: what they learn from where, and that the engine's arithmetic is theirs."""

import functools

import pytest
import torch
from transformers import AutoModelForCausalLM

from specinfer.lean import load_llm
from specinfer.lean.linear import dense
from specinfer.lean.recurrent import build_recurrent
from specinfer.train import states
from specinfer.train.batches import targets
from specinfer.train.ranks import Ranks
from specinfer.train.recurrent import LEVELS, Recurrent, begun
from specinfer.train.shards import ANSWER, PROMPT, Corpus

LENGTHS = (11, 7, 300)


@pytest.fixture(scope="module")
def student(llm) -> Recurrent:
    model = AutoModelForCausalLM.from_pretrained(llm, local_files_only=True)
    return begun(model, blocks=2, vocabulary=torch.arange(3, 60, 2), seed=5)


@pytest.fixture(scope="module")
def corpus(student) -> Corpus:
    generator = torch.Generator().manual_seed(0)
    size = sum(LENGTHS)
    kind = torch.full((size,), ANSWER, dtype=torch.uint8)
    kind[:3] = PROMPT
    return Corpus(
        tokens=torch.randint(3, 60, (size,), generator=generator, dtype=torch.int32),
        offsets=torch.tensor([0, *LENGTHS]).cumsum(0),
        kind=kind,
        ids=torch.randint(3, 60, (size, 2), generator=generator, dtype=torch.int32),
        probs=torch.full((size, 2), 0.5, dtype=torch.float16),
        states=torch.randn(size, student.embedding.shape[1], generator=generator).half(),
    )


def chained(student: Recurrent, corpus: Corpus, place: int, level: int) -> torch.Tensor:
    """Return the log-law at a place of a draft that began so many tokens before, step by step."""
    start = place - level
    state = corpus.states[start : start + 1].float()
    for at in range(start + 1, place + 1):
        state = student.step(state, corpus.tokens[at : at + 1].long())
    return student.log_laws(student.norm(state))[0]


@torch.no_grad()
def test_a_lesson_begins_everywhere_in_turn_and_stays_in_its_sequence(student, corpus) -> None:
    data = targets(corpus, student.vocabulary, torch.ones(len(corpus.tokens)))
    taught = torch.zeros(len(corpus.tokens))
    for step in range(LEVELS):
        batch = student.lesson(data, [0, 2], step)
        log_laws, at = student(*batch.inputs), 0
        for s in (0, 2):
            first, end = corpus.offsets[s : s + 2].tolist()
            for start in range(first + step, end - 1, LEVELS):
                for level in range(1, LEVELS + 1):
                    inside = start + level < end
                    assert float(batch.weights[at]) == inside
                    if inside:
                        taught[start + level] += 1
                        expected = chained(student, corpus, start + level, level)
                        torch.testing.assert_close(log_laws[at], expected)
                    at += 1
        assert at == len(log_laws)
    assert (taught[11:18] == 0).all() and int(taught[4:11].min()) == LEVELS


@torch.no_grad()
def test_laws_stand_at_the_places_they_are_about(student, corpus) -> None:
    laws = list(student.laws(corpus, [1, 0], depth=3))
    places = [*range(11, 18), *range(11)]
    for level in (1, 2, 3):
        for row, place in enumerate(places):
            if place - level >= (11 if row < 7 else 0):
                expected = chained(student, corpus, place, level)
                torch.testing.assert_close(laws[level - 1][row], expected)


@torch.no_grad()
def test_the_engine_computes_what_was_trained(student) -> None:
    make = functools.partial(dense, dtype=torch.float32)
    served = build_recurrent(
        student.learnt(), student.embedding, student.head, student.eps, torch.float32, make
    )
    states, tokens = torch.randn(5, student.embedding.shape[1]), torch.tensor([3, 9, 3, 20, 59])
    after = served.step(states, tokens)
    torch.testing.assert_close(after, student.step(states, tokens))
    laws = served.logits(after).log_softmax(1)
    torch.testing.assert_close(laws, student.log_laws(student.norm(after)))


def test_states_are_the_llms_and_kept_in_parts(llm, corpus, tmp_path, monkeypatch) -> None:
    """Two parts, by two ranks; a part that is there is not read again, one of other shards is."""
    monkeypatch.setattr(states, "PART", 2)
    model = load_llm(llm, "float32", torch.device("cpu"))
    told: list[tuple[int, int]] = []
    for rank in (1, 0):
        states.keep(corpus, model, tmp_path, Ranks(rank, 2), lambda *done: told.append(done))
    assert told == [(3, 3), (2, 3)]
    found = states.stored(corpus, tmp_path).states
    reference = AutoModelForCausalLM.from_pretrained(llm, local_files_only=True).base_model
    with torch.no_grad():
        text = corpus.tokens[18:].long()[None]
        expected = reference(input_ids=text).last_hidden_state[0]
    assert torch.allclose(found[18:].float(), expected, atol=5e-3)

    before = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
    states.keep(corpus.select([0, 1, 0]), model, tmp_path, Ranks(), lambda *done: None)
    after = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
    assert after[0] == before[0] and after[1] != before[1]
