"""Whom to ask for drafts: not those whose last drafts were all found not worth a row.

In a large batch a row must be likely to stand, most drafts are not, and making and weighing them
would cost each step a few per cent of its time for nothing.
"""

from dataclasses import dataclass, field

from specinfer.request import Request

LONGEST = 3  # steps that a request is left alone at most


@dataclass(slots=True)
class Patience:
    """For each request the steps it is left alone, and those still to go."""

    _waits: dict[Request, int] = field(default_factory=dict)
    _left: dict[Request, int] = field(default_factory=dict)

    def may_ask(self, request: Request) -> bool:
        """Tell whether to ask for a draft in this step."""
        if request.repeatable:  # what is drafted for others must not change its answer
            return True
        left = self._left.get(request, 0)
        self._left[request] = max(0, left - 1)
        return left == 0

    def learn(self, request: Request, *, proposed: int, kept: int) -> None:
        """Wait longer each time that nothing was kept of what was proposed."""
        if kept:
            self._waits[request] = 0
        elif proposed:
            self._waits[request] = min(LONGEST, self._waits.get(request, 0) + 1)
            self._left[request] = self._waits[request]

    def forget(self, request: Request) -> None:
        self._waits.pop(request, None)
        self._left.pop(request, None)
