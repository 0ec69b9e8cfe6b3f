"""Which answers are pure functions of their request, and the key under which they are kept."""

import hashlib
from dataclasses import dataclass
from typing import Any

from specinfer_gateway.admission import Request
from specinfer_gateway.body import canonical
from specinfer_gateway.dialects import Dialect, Document

FORMAT = 1  # to be raised whenever the meaning of a stored answer changes
# They alter how an answer is carried, never its text.
CARRIAGE = frozenset({"stream", "stream_options", "user"})
WHOLE = frozenset({"length", "stop", "eos_token", "stop_sequence"})


@dataclass(frozen=True, slots=True)
class Deployment:
    """What else the answer depends on."""

    model_revision: str
    engine_revision: str


def cache_key(request: Request, deployment: Deployment) -> str | None:
    """Return the SHA-256 of everything that changes the answer, None when it is drawn at random.

    A greedy answer is the LLM's own whatever the token tree; a seeded sample also depends on
    the order in which the engine uses its random numbers, so on the engine's settings.
    """
    parameters = request.dialect.parameters(request.body)
    greedy = temperature(request.dialect, parameters) == 0
    if not greedy and parameters.get("seed") is None:
        return None
    subject = {
        "format": FORMAT,
        "dialect": request.dialect.name,
        "model": deployment.model_revision,
        "engine": None if greedy else deployment.engine_revision,
        "body": {key: item for key, item in request.body.items() if key not in CARRIAGE},
    }
    return hashlib.sha256(canonical(subject)).hexdigest()


def temperature(dialect: Dialect, parameters: Document) -> float:
    """Return the temperature that the container will use; 0 is greedy.

    An explicit do_sample = false is greedy; without a temperature, any other sampling parameter
    means sampling at 1; with none the dialect decides.
    """
    if dialect.key == "inputs" and parameters.get("do_sample") is False:
        return 0.0
    given = parameters.get("temperature")
    if given is not None:
        return float(given)
    top_k, top_p = parameters.get("top_k"), parameters.get("top_p")
    narrowed = (top_k is not None and top_k > 0) or (top_p is not None and top_p < 1)
    return 1.0 if narrowed or parameters.get("do_sample") else dialect.default_temperature


def is_whole(dialect: Dialect, answer: Any) -> bool:
    """Whether an unwrapped answer came to its natural end, so that it may be kept."""
    finish = dialect.finish(answer)
    return finish.get("finish_reason") in WHOLE and not finish.get("truncated_by")
