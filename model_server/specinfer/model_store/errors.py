"""What can go wrong between a model's name and its folder."""

from specinfer.errors import SpecInferError


class ModelStoreError(SpecInferError):
    """A model cannot be found, fetched, checked or converted; the message says what to do."""
