"""The way into an engine: text to token ids and back, and which prompts are refused unread."""

from collections.abc import Mapping, Sequence

from specinfer.errors import ContextLengthError, ParameterError
from specinfer.grammar.compiler import Grammars
from specinfer.grammar.constraint import Constraint
from specinfer.sampling import SamplingParams
from specinfer.tokenizer import Tokenizer


class Intake:
    """A tokenizer and the limits of what it is to feed."""

    def __init__(self, tokenizer: Tokenizer, *, vocab: int, max_context: int) -> None:
        self.max_context = max_context
        self._tokenizer = tokenizer
        self._grammars = Grammars(tokenizer.definition, vocab=vocab, eos=tokenizer.eos)
        self.vocab = vocab

    @property
    def end_tokens(self) -> frozenset[int]:
        """Token ids that end an answer."""
        return self._tokenizer.eos

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self._tokenizer.encode_chat(messages)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens)

    def prepare(self, params: SamplingParams) -> None:
        """Compile the grammar, which may take a second, so that `submit` finds it ready.

        Raises ParameterError naming the grammar's field.
        """
        self.constraint(params)

    def constraint(self, params: SamplingParams) -> Constraint | None:
        """Return the request's grammar at its beginning; raises ParameterError."""
        return None if params.grammar is None else self._grammars.constraint(params.grammar)

    def check(self, prompt: Sequence[int], params: SamplingParams) -> None:
        """Refuse what would take a whole batch down; raises ParameterError, ContextLengthError."""
        if not prompt:
            raise ParameterError("prompt", "must not be empty")
        named = {
            "prompt": prompt,
            "logit_bias": params.logit_bias,
            "stop_token_ids": params.stop_token_ids,
        }
        for field, tokens in named.items():
            for token in tokens:
                if not 0 <= token < self.vocab:
                    raise ParameterError(
                        field, f"token {token} is outside the vocabulary of {self.vocab}"
                    )
        if len(prompt) >= self.max_context:
            raise ContextLengthError(len(prompt), self.max_context)
