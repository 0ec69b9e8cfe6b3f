"""What can go wrong in a benchmark that is the user's to mend."""

from specinfer.errors import SpecInferError


class BenchError(SpecInferError):
    """A benchmark cannot be run as asked."""
