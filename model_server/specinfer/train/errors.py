"""What can go wrong in training that is the user's to mend."""

from specinfer.errors import SpecInferError


class TrainError(SpecInferError):
    """Training cannot start or go on."""
