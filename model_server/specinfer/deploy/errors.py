"""What deployment refuses."""

from specinfer.errors import SpecInferError


class DeployError(SpecInferError):
    """An artefact or an endpoint cannot be made as asked."""
