"""What a planner refuses."""

from specinfer.errors import SpecInferError


class PlanError(SpecInferError):
    """No plan: the message gives the reason and what would do instead."""
