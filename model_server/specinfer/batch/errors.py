"""Why a batch does not start or go on."""

from specinfer.errors import SpecInferError


class BatchError(SpecInferError):
    """The files do not fit together, or the server cannot be used."""
