"""What the pretend card refuses; a card raises RuntimeError as well."""


class CardError(RuntimeError):
    """CUDA would refuse this, or compute with garbage."""


class CaptureError(CardError):
    """No CUDA graph can hold this."""
