"""Log-probabilities of tokens as each dialect writes them."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from specinfer.request import TokenLogprob
from specinfer.text import BROKEN

Decode = Callable[[Sequence[int]], str]
Document = dict[str, Any]
# JSON has no minus infinity; OpenAI's clients know this number for "as good as impossible".
IMPOSSIBLE = -9999.0


def chat_logprobs(each: Sequence[TokenLogprob], decode: Decode) -> Document | None:
    """Return `choices[].logprobs` of a chat completion; None where there are none to tell."""
    if not each:
        return None
    content = [
        _chat_entry(one.token, one.logprob, decode)
        | {"top_logprobs": [_chat_entry(token, value, decode) for token, value in one.top]}
        for one in each
    ]
    return {"content": content, "refusal": None}


def _chat_entry(token: int, logprob: float, decode: Decode) -> Document:
    """A token that is part of a character has text only together with its neighbours."""
    text = decode([token])
    raw = None if BROKEN in text else list(text.encode())
    return {"token": text, "logprob": max(logprob, IMPOSSIBLE), "bytes": raw}


def completion_logprobs(
    each: Sequence[TokenLogprob], decode: Decode, offset: int
) -> Document | None:
    """Return `choices[].logprobs` of a completion whose text starts at character offset."""
    if not each:
        return None
    texts = [decode([one.token]) for one in each]
    return {
        "tokens": texts,
        "token_logprobs": [max(one.logprob, IMPOSSIBLE) for one in each],
        "top_logprobs": [_completion_top(one, decode) for one in each] if each[0].top else None,
        "text_offset": list(accumulate(map(len, texts[:-1]), initial=offset)),
    }


def _completion_top(one: TokenLogprob, decode: Decode) -> dict[str, float]:
    """Map texts to values, the chosen token's among them; of equal texts the likelier counts."""
    found: dict[str, float] = {}
    for token, value in (*one.top, (one.token, one.logprob)):
        found.setdefault(decode([token]), max(value, IMPOSSIBLE))
    return found


def tgi_token(token: int | None, text: str | None, logprob: float | None = None) -> Document:
    """Return a token as TGI lists it."""
    told = None if logprob is None else max(logprob, IMPOSSIBLE)
    return {"id": token, "text": text, "logprob": told, "special": False}


def tgi_top_tokens(each: Sequence[TokenLogprob], decode: Decode) -> list[list[Document]]:
    """Return, for each token, the likeliest ones in its place."""
    return [[tgi_token(token, decode([token]), value) for token, value in one.top] for one in each]
