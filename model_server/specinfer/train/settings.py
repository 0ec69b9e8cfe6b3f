"""What a training run is: frozen, checked when built, and written beside what it made."""

from dataclasses import dataclass
from typing import Literal, get_args

from specinfer.errors import ConfigError

Loss = Literal["kl", "tv"]
Kind = Literal["recurrent", "layers"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How a pool is trained.  Raises ConfigError naming the setting that is wrong."""

    kinds: tuple[str, ...] = ("recurrent", "layers")  # of each SSM; the last holds for the rest
    layers: tuple[int, ...] = (0, 1)  # of the LLM, in this order: an SSM's of that kind
    blocks: int = 2  # of a recurrent SSM
    vocabulary: int = 8192  # tokens an SSM can propose
    ssms: int = 2
    steps: tuple[int, ...] = (1000,)  # of each SSM; the last number holds for the rest
    text_steps: int = 300  # of the first lesson, where there is text
    batch_tokens: int = 2048  # of a step, all devices together
    rate: float = 1e-3  # of AdamW at its height; three times as much for recurrent SSMs
    loss: Loss = "kl"
    prompt_weight: float = 0.25  # of a law about a prompt's token, answers being 1
    kept_weight: float = 0.1  # of a place that an earlier SSM of the pool has right
    hold_out: int = 40  # every so-many-th sequence is for measuring only
    save_every: int = 100  # steps between checkpoints
    seed: int = 0

    def __post_init__(self) -> None:
        known = bool(self.kinds) and all(kind in KINDS for kind in self.kinds)
        _require("kinds", known, self.kinds, f"of {', '.join(KINDS)}")
        for name in ("vocabulary", "ssms", "blocks", "text_steps", "batch_tokens", "save_every"):
            _require(name, getattr(self, name) >= 1, getattr(self, name), "at least 1")
        _require("steps", bool(self.steps) and min(self.steps) >= 1, self.steps, "at least 1")
        _require("layers", bool(self.layers), self.layers, "at least one")
        _require("hold_out", self.hold_out >= 2, self.hold_out, "at least 2")
        _require("rate", self.rate > 0, self.rate, "above 0")
        for name in ("prompt_weight", "kept_weight"):
            value = getattr(self, name)
            _require(name, 0 <= value <= 1, value, "between 0 and 1")

    def steps_of(self, ssm: int) -> int:
        """Return the steps of the pool's so-many-th SSM, from 0."""
        return self.steps[min(ssm, len(self.steps) - 1)]

    def kind_of(self, ssm: int) -> str:
        """Return the kind of the pool's so-many-th SSM, from 0."""
        return self.kinds[min(ssm, len(self.kinds) - 1)]

    @property
    def used_kinds(self) -> set[str]:
        return {self.kind_of(ssm) for ssm in range(self.ssms)}


def whole_numbers(name: str, text: str | None) -> tuple[int, ...] | None:
    """Read `700,300`; raises ConfigError naming the setting."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{name}: expected whole numbers like 700,300, got {text!r}") from None


def _require(name: str, ok: bool, value: object, rule: str) -> None:
    if not ok:
        raise ConfigError(f"{name}: must be {rule}, got {value!r}")
