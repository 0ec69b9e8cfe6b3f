"""What can happen to a call on its way to a replica."""

from specinfer.errors import SpecInferError


class ReplicaLostError(SpecInferError):
    """The replica died, or its node did, before the answer was complete."""


class FleetBusyError(SpecInferError):
    """As many calls wait for a replica as may."""
