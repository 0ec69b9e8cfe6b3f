"""Grammars compiled for one tokenizer by llguidance, the latest of them kept."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specinfer.errors import ParameterError
from specinfer.grammar.constraint import Constraint, Mask
from specinfer.grammar.spec import Grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# Between two tokens of JSON: enough for any usual lay-out.  Where it is unbounded, a small model
# that has lost its way writes spaces until its tokens run out.
WHITESPACE = r" |\n[ \t]{0,40}"
MAX_ITEMS = 10_000  # of the parser, a mask; the library's 50,000 allow a mask of a second
MESSAGE = 200  # characters of the library's explanation, which repeats the grammar


class Grammars:
    """Compiles grammars; may be called from any thread."""

    def __init__(
        self, definition: Callable[[], str], *, vocab: int, eos: frozenset[int], size: int = 64
    ) -> None:
        """definition gives the tokenizer as `tokenizers` JSON, asked for once when needed."""
        self._definition = definition
        self._vocab = vocab
        self._eos = eos
        self._size = size
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()

    def constraint(self, grammar: Grammar) -> Constraint:
        """Return a grammar at its beginning; raises ParameterError naming its field."""
        with self._lock:
            known = self._compiled.get(grammar)
        matcher = known or self._compile(grammar)
        with self._lock:
            self._compiled[grammar] = matcher
            self._compiled.move_to_end(grammar)
            if len(self._compiled) > self._size:
                self._compiled.popitem(last=False)
            return Constraint(LLGuidanceMatcher(matcher.deep_copy()))

    def _compile(self, grammar: Grammar) -> "LLMatcher":
        try:
            from llguidance import LLMatcher, LLParserLimits
        except ImportError:
            needs = "needs on the server: pip install 'specinfer-sagemaker[grammar]'"
            raise ParameterError(grammar.field, needs) from None
        limits = LLParserLimits(verbose_errors=False, step_max_items=MAX_ITEMS)
        tokenizer = self._known_tokenizer(grammar.field)
        try:
            matcher = LLMatcher(tokenizer, _rules(grammar), log_level=0, limits=limits)
        except ValueError as error:
            raise ParameterError(grammar.field, _short(str(error))) from None
        matcher.compute_bitmask()  # some grammars only turn out to be hopeless here
        if matcher.is_error():
            raise ParameterError(grammar.field, _short(matcher.get_error()))
        return matcher

    def _known_tokenizer(self, field: str) -> "LLTokenizer":
        from llguidance import LLTokenizer

        with self._lock:
            if self._tokenizer is None:
                if not self._eos:
                    raise ParameterError(field, "this model names no token that ends an answer")
                try:
                    self._tokenizer = LLTokenizer(
                        self._definition(), n_vocab=self._vocab, eos_token=sorted(self._eos)
                    )
                except ValueError as error:
                    unfit = f"this model's tokenizer takes no grammars: {error}"
                    raise ParameterError(field, _short(unfit)) from None
            return self._tokenizer


class LLGuidanceMatcher:
    """llguidance's matcher behind the five things a Constraint asks of it."""

    def __init__(self, matcher: "LLMatcher") -> None:
        self._matcher = matcher

    def take(self, tokens: Sequence[int]) -> int:
        return self._matcher.try_consume_tokens(list(tokens))

    def give_back(self, count: int) -> None:
        self._matcher.rollback(count)

    def mask(self) -> Mask:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, bitorder="little").view(np.bool_)
        # At a limit the library allows the end, as if the answer were complete.
        return np.zeros_like(mask) if self._matcher.is_error() else mask

    def forced(self) -> list[int]:
        return self._matcher.compute_ff_tokens()

    @property
    def over(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def problem(self) -> str:
        return _short(self._matcher.get_error())


def _rules(grammar: Grammar) -> str:
    """Return the grammar as llguidance takes it; raises ValueError."""
    from llguidance import LLMatcher, grammar_from

    if grammar.kind == "json_schema":
        return LLMatcher.grammar_from_json_schema(
            grammar.text, overrides={"whitespace_pattern": WHITESPACE}
        )
    if grammar.kind == "choice":  # one terminal: a rule for each choice costs a mask 13 ms
        texts = " | ".join(json.dumps(text) for text in json.loads(grammar.text))
        return LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {texts}")
    return grammar_from("grammar" if grammar.kind == "ebnf" else "regex", grammar.text)


def _short(message: str) -> str:
    """Return one line of bounded length."""
    line = " ".join(message.split())
    return line if len(line) <= MESSAGE else f"{line[:MESSAGE]}…"
