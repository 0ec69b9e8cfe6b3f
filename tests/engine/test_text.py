"""Text comes out whole: no broken character, no stop string, no token beyond it."""

import random

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from specinfer.text import TextStream
from specinfer.tokenizer import Tokenizer, _plain_backend

BYTES = [*"日本語 🙂 done. naïve café".encode()]


def decode(tokens: list[int]) -> str:
    """A byte-level tokenizer: one token a byte, like the worst case of byte-pair encoding."""
    return bytes(tokens).decode("utf-8", errors="replace")


def stream(tokens: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], list[int], bool]:
    out = TextStream(decode, stop)
    texts: list[str] = []
    kept: list[int] = []
    for token in tokens:
        piece = out.push(token)
        texts.append(piece.text)
        kept += piece.tokens
        if out.stopped:
            break
    piece = out.flush()
    return [*texts, piece.text], [*kept, *piece.tokens], out.stopped


def test_pieces_join_to_the_whole_and_never_hold_a_broken_character() -> None:
    texts, tokens, _ = stream(BYTES)
    assert "".join(texts) == decode(BYTES)
    assert not any("\ufffd" in text for text in texts)
    assert tokens == BYTES


def test_bytes_that_never_become_a_character_are_shown_once_it_is_certain() -> None:
    texts, _, _ = stream([0xE6, ord("a"), ord("b")])
    assert "".join(texts) == "\ufffdab"


def test_an_unfinished_character_at_the_end_is_left_out() -> None:
    texts, _, _ = stream([ord("a"), 0xE6, 0x97])
    assert "".join(texts) == "a"


@pytest.mark.parametrize("stop", ["STOP", "S", "TOP"])
def test_nothing_at_or_after_a_stop_string_shows(stop: str) -> None:
    text = "before STOP after"
    texts, tokens, stopped = stream([*text.encode()], (stop,))
    assert "".join(texts) == text[: text.index(stop)]
    assert tokens == [*text[: text.index(stop)].encode()]
    assert stopped


def test_a_tail_that_might_become_a_stop_string_is_held_back_and_then_flushed() -> None:
    out = TextStream(decode, ("</s>",))
    assert "".join(out.push(t).text for t in b"ab</s") == "ab"
    assert out.flush().text == "</s"


def test_the_earliest_of_several_stop_strings_wins() -> None:
    texts, _, _ = stream([*b"one two three"], ("three", "two", "wo t"))
    assert "".join(texts) == "one "


def test_random_texts_and_stops_agree_with_plain_string_search() -> None:
    rng = random.Random(0)
    for _ in range(300):
        text = "".join(rng.choice("ab🙂c") for _ in range(rng.randrange(1, 25)))
        stops = tuple(
            "".join(rng.choice("ab🙂c") for _ in range(rng.randrange(1, 4)))
            for _ in range(rng.randrange(3))
        )
        ends = [_first_complete(text, stop) for stop in stops if stop in text]
        texts, _, stopped = stream([*text.encode()], stops)
        assert stopped == bool(ends)
        want = text[: min(ends)[1]] if ends else text
        assert "".join(texts) == want


def _first_complete(text: str, stop: str) -> tuple[int, int]:
    """Return where stop is first complete, and where it began: the stream sees the former."""
    start = text.index(stop)
    return start + len(stop), start


def test_a_tokenizer_decodes_as_transformers_does(tiny) -> None:
    tokenizer = Tokenizer(tiny["llama"])
    assert tokenizer._backend is not None
    tokens = list(range(40))
    expected = tokenizer._inner.decode(
        tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    assert tokenizer.decode(tokens) == expected


def test_a_class_that_decodes_in_its_own_way_is_asked() -> None:
    class Own(PreTrainedTokenizerFast):
        def _decode(self, *args: object, **kwargs: object) -> str:
            return "its own"

    assert _plain_backend(Own(tokenizer_object=Backend(WordLevel({"a": 0})))) is None
