"""The endpoint as calls of the SageMaker SDK, with the parameters of terraform/modules.

Models and configurations cannot be changed, so their names carry a hash of what is in them: the
same plan finds them again, another makes new ones beside them.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specinfer.deploy.errors import DeployError

VARIANT = "main"
TIMEOUT_RANGE = range(60, 3601)  # SageMaker's own limits, in seconds


@dataclass(frozen=True, slots=True)
class Call:
    """One call of sagemaker.core.resources."""

    resource: str
    method: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.resource}.{self.method}({arguments})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPlan:
    """A real-time endpoint.  Raises DeployError for what SageMaker would refuse much later."""

    name: str
    image: str
    role_arn: str
    model_s3_uri: str  # a prefix that ends in /, or a model.tar.gz
    environment: Mapping[str, str] = field(default_factory=dict)
    instance_type: str = "ml.g5.xlarge"
    instances: int = 1
    inference_ami_version: str = "al2023-ami-sagemaker-inference-gpu-4-1"
    startup_timeout_s: int = 900
    subnet_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    volume_kms_key_arn: str | None = None

    def __post_init__(self) -> None:
        _require(re.fullmatch("[a-z0-9](-?[a-z0-9]){0,39}", self.name), "name", self.name)
        uri = r"s3://[^/]+/(.+/)?([^/]+\.tar\.gz)?"
        _require(re.fullmatch(uri, self.model_s3_uri), "model_s3_uri", self.model_s3_uri)
        timeout = self.startup_timeout_s
        _require(timeout in TIMEOUT_RANGE, "startup_timeout_s", timeout)
        _require(self.instances >= 1, "instances", self.instances)
        networks = bool(self.subnet_ids) == bool(self.security_group_ids)
        _require(networks, "subnet_ids need security_group_ids", self.subnet_ids)
        for name in self.environment:
            _require(name.startswith("SPECINFER_"), "environment", name)

    def calls(self) -> tuple[Call, Call, Call]:
        """Return the calls that make a model, a configuration and an endpoint, in this order."""
        model = self._named("model_name", self._model())
        config = self._named("endpoint_config_name", self._config(model["model_name"]))
        endpoint = {
            "endpoint_name": self.name,
            "endpoint_config_name": config["endpoint_config_name"],
        }
        return (
            Call("Model", "create", model),
            Call("EndpointConfig", "create", config),
            Call("Endpoint", "create", endpoint),
        )

    def _named(self, key: str, arguments: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(arguments, sort_keys=True)
        return {key: f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"} | arguments

    def _model(self) -> dict[str, Any]:
        compressed = self.model_s3_uri.endswith(".tar.gz")
        source = {
            "s3_uri": self.model_s3_uri,
            "s3_data_type": "S3Object" if compressed else "S3Prefix",
            "compression_type": "Gzip" if compressed else "None",
        }
        container = {
            "image": self.image,
            "model_data_source": {"s3_data_source": source},
            "environment": {"HF_HUB_OFFLINE": "1", **self.environment},
        }
        network = {
            "subnets": list(self.subnet_ids),
            "security_group_ids": list(self.security_group_ids),
        }
        return {
            "execution_role_arn": self.role_arn,
            "enable_network_isolation": True,
            "primary_container": container,
        } | ({"vpc_config": network} if self.subnet_ids else {})

    def _config(self, model_name: str) -> dict[str, Any]:
        variant = {
            "variant_name": VARIANT,
            "model_name": model_name,
            "instance_type": self.instance_type,
            "initial_instance_count": self.instances,
            "inference_ami_version": self.inference_ami_version,
            "container_startup_health_check_timeout_in_seconds": self.startup_timeout_s,
            "model_data_download_timeout_in_seconds": self.startup_timeout_s,
            "routing_config": {"routing_strategy": "LEAST_OUTSTANDING_REQUESTS"},
        }
        key = self.volume_kms_key_arn
        return {"production_variants": [variant]} | ({"kms_key_id": key} if key else {})


def _require(ok: object, what: str, value: object) -> None:
    if not ok:
        raise DeployError(f"{what}: {value!r} will not do{HINTS.get(what, '')}")


HINTS = {
    "name": "; at most 40 lower-case letters, digits and inner hyphens",
    "model_s3_uri": "; write s3://bucket/prefix/ with the last slash, or an object *.tar.gz",
    "startup_timeout_s": f"; {TIMEOUT_RANGE.start} to {TIMEOUT_RANGE.stop - 1} seconds",
    "instances": "; at least 1",
    "environment": "; the container's settings start with SPECINFER_",
}
