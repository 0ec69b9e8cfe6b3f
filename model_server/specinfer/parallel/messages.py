"""What the process that takes requests and rank 0 tell each other, one pickled value at a time."""

from dataclasses import dataclass

from specinfer.config import EngineConfig
from specinfer.request import Delta
from specinfer.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Start:
    """The first word to rank 0: what to load, and how long a step may take."""

    config: EngineConfig
    step_limit_s: float


@dataclass(frozen=True, slots=True)
class Submit:
    """Answer a prompt; its deltas come back under the number."""

    number: int
    prompt: tuple[int, ...]
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give a request up."""

    number: int


@dataclass(frozen=True, slots=True)
class Close:
    """End all ranks after the current step."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The first word of rank 0: the engine it has built."""

    model_id: str
    revision: str
    vocab: int
    max_context: int
    pages: int


@dataclass(frozen=True, slots=True)
class Refused:
    """... or why there is none."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A piece of an answer."""

    number: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life, with the figures of the moment."""

    running: int
    pages_used: int


ToRank = Start | Submit | Cancel | Close
FromRank = Ready | Refused | Answer | Beat
