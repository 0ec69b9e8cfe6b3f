"""What is asked of a deployment."""

from dataclasses import dataclass, fields

from specinfer.plan.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests a second, their sizes in tokens, and how long one may take."""

    requests: float = 1.0
    prompt: int = 512
    new: int = 128
    seconds: float = 30.0

    @classmethod
    def parse(cls, text: str) -> "Traffic":
        """Read `requests=2,prompt=512,new=128,seconds=10`; what is left out has a default."""
        names = [field.name for field in fields(cls)]
        values: dict[str, float] = {}
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            if key.strip() not in names:
                raise PlanError(f"traffic: {key.strip()!r} is not one of {', '.join(names)}")
            values[key.strip()] = _positive(key, value)
        default = cls()
        return cls(
            requests=values.get("requests", default.requests),
            prompt=max(1, int(values.get("prompt", default.prompt))),
            new=max(1, int(values.get("new", default.new))),
            seconds=values.get("seconds", default.seconds),
        )

    @property
    def tokens(self) -> int:
        """Tokens of a whole sequence."""
        return self.prompt + self.new


def _positive(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise PlanError(f"traffic: {key.strip()} must be a number above 0, got {text!r}")
    return value
