"""Tokens a step to expect of a tree, and which tree to draft (paper, section 3.1 and Table 1)."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

from specinfer.config import TreeShape
from specinfer.plan.errors import PlanError

# Between the paper's Table 1 averages for greedy (0.66) and stochastic decoding (0.55).
ASSUMED = 0.6
DEPTHS, WIDTHS = range(1, 9), range(1, 6)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The chance that an SSM's likeliest next token stands, and how that is known."""

    rate: float
    known_from: str  # assumed, given, or a file


def stands(rate: float, width: int) -> float:
    """Return the chance that one of a node's children stands.

    Misses fall with the root of the number of children: 0.012 from the greedy averages of the
    paper's Table 1 at most, for 1 to 5 children.
    """
    return 1 - (1 - rate) / sqrt(width)


def tokens_a_step(widths: Sequence[int], rate: float) -> float:
    """Return the expected tokens of one step, the LLM's own among them.

    Levels are taken as independent, which is within 15 % of the paper's Table 2.
    """
    tokens = chance = 1.0
    for width in widths:
        chance *= stands(rate, width)
        tokens += chance
    return tokens


def candidates() -> Iterator[tuple[int, ...]]:
    """Yield no tree, chains, and chains that branch once, as the paper's <1,1,3,1,…>."""
    yield ()
    for depth in DEPTHS:
        for place in range(depth):
            for width in WIDTHS:
                if width > 1 or place == 0:
                    yield (1,) * place + (width,) + (1,) * (depth - place - 1)


def best_tree(
    rate: float, step_s: Callable[[Sequence[int]], float]
) -> tuple[tuple[int, ...], float]:
    """Return the tree of most expected tokens a second, and its tokens a step."""
    best = max(candidates(), key=lambda widths: tokens_a_step(widths, rate) / step_s(widths))
    return best, tokens_a_step(best, rate)


def nodes(widths: Sequence[int]) -> int:
    return TreeShape(tuple(widths)).nodes if widths else 0


def read_profile(path: Path) -> Acceptance:
    """Read a server's saved /metrics page: the rate at which a chain does as well as it did.

    Raises PlanError for a page without a verified step.
    """
    try:
        page = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"profile {path}: {error}") from None
    steps, accepted = (_counter(page, name, path) for name in ("verify_steps", "accepted_tokens"))
    if steps == 0:
        raise PlanError(f"profile {path}: its server has verified nothing yet")
    return Acceptance(_rate_of(1 + accepted / steps), str(path))


def _counter(page: str, name: str, path: Path) -> float:
    match = re.search(rf"^specinfer_{name}_total ([\d.e+]+)$", page, re.MULTILINE)
    if match is None:
        raise PlanError(f"profile {path}: no specinfer_{name}_total; save a server's /metrics page")
    return float(json.loads(match[1]))


def _rate_of(tokens: float) -> float:
    """Invert tokens_a_step for the deepest chain, by halving."""
    chain = (1,) * DEPTHS[-1]
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_a_step(chain, middle) < tokens else (low, middle)
    return low
