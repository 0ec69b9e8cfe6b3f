"""Why the laptop stack cannot start, or had to stop."""

from specinfer.errors import SpecInferError


class LocalStackError(SpecInferError):
    """One sentence for the terminal."""
