"""The error every public function of this package raises for arguments it cannot serve."""


class KernelError(ValueError):
    """Arguments of the wrong shape, type or range; the message names the value and the limit."""
