"""What a request may say about how its tokens are chosen."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from specinfer.errors import ParameterError
from specinfer.grammar.spec import Grammar

MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose tokens; temperature 0 is greedy.

    top_k 0, top_p 1, min_p 0, typical_p 1, repetition_penalty 1, and frequency and presence
    penalties of 0 each change nothing.  The repetition penalty looks at prompt and answer, the
    other two at the answer only.  logprobs asks for each token's log-probability under the LLM
    itself, with so many of the likeliest tokens beside it.

    A grammar wins over all else: bans and biases choose among the tokens it allows, min_new_tokens
    and ignore_eos do not keep an answer going that has nothing left to say, and where nothing that
    it allows is left by the rest, all of it is equally likely.

    Raises ParameterError naming the field that is out of range.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        limits = {
            "max_new_tokens": (self.max_new_tokens >= 1, "at least 1"),
            "min_new_tokens": (
                0 <= self.min_new_tokens <= self.max_new_tokens,
                "in [0, max_new_tokens]",
            ),
            "temperature": (0 <= self.temperature <= 100, "in [0, 100]"),
            "top_k": (self.top_k >= 0, "at least 0"),
            "top_p": (0 < self.top_p <= 1, "in (0, 1]"),
            "min_p": (0 <= self.min_p <= 1, "in [0, 1]"),
            "typical_p": (0 < self.typical_p <= 1, "in (0, 1]"),
            "repetition_penalty": (0 < self.repetition_penalty <= 100, "in (0, 100]"),
            "frequency_penalty": (-2 <= self.frequency_penalty <= 2, "in [-2, 2]"),
            "presence_penalty": (-2 <= self.presence_penalty <= 2, "in [-2, 2]"),
            "logit_bias": (
                all(-100 <= bias <= 100 for bias in self.logit_bias.values()),
                "made of values in [-100, 100]",
            ),
            "seed": (self.seed is None or 0 <= self.seed < 2**63, "in [0, 2^63)"),
            "stop": (all(self.stop), "free of empty strings"),
            "logprobs": (
                self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
                f"in [0, {MAX_LOGPROBS}]",
            ),
        }
        for name, (ok, rule) in limits.items():
            if not ok:
                raise ParameterError(name, f"must be {rule}, got {getattr(self, name)!r}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def filtered(self) -> bool:
        """Whether some tokens' probability becomes zero."""
        return self.top_k != 0 or self.top_p != 1 or self.typical_p != 1 or self.min_p != 0

    @property
    def penalised(self) -> bool:
        """Whether a token's logit depends on the tokens before it."""
        return (
            self.repetition_penalty != 1
            or self.frequency_penalty != 0
            or self.presence_penalty != 0
        )
