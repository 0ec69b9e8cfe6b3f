"""Carries a plan out with the SageMaker SDK's resources, and takes an endpoint down again."""

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from specinfer.deploy.errors import DeployError
from specinfer.deploy.plan import Call, EndpointPlan

Say = Callable[[str], None]


class Resources(Protocol):
    """sagemaker.core.resources, as far as it is used."""

    Model: Any
    EndpointConfig: Any
    Endpoint: Any


def sdk_resources() -> Resources:
    """Import the SDK (seconds, hundreds of megabytes); raises DeployError if it is not there."""
    try:
        resources: Resources = importlib.import_module("sagemaker.core.resources")
    except ImportError:
        raise DeployError("this needs: pip install specinfer-sagemaker[deploy]") from None
    return resources


def deploy(plan: EndpointPlan, resources: Resources, say: Say, wait_s: int | None = None) -> None:
    """Make what is missing and point the endpoint at it; wait until it serves.

    An endpoint that is there is updated without an interruption.
    """
    model, config, endpoint = plan.calls()
    for call, key in ((model, "model_name"), (config, "endpoint_config_name")):
        if _find(resources, call, key) is None:
            _run(resources, call, say)
    running = _find(resources, endpoint, "endpoint_name")
    if running is None:
        running = _run(resources, endpoint, say)
    elif running.endpoint_config_name != endpoint.arguments["endpoint_config_name"]:
        running.endpoint_config_name = endpoint.arguments["endpoint_config_name"]
        say(f"Endpoint.update({dict(endpoint.arguments)})")
        running.update()
    say(f"waiting for endpoint {plan.name} to be in service")
    try:
        running.wait_for_status("InService", timeout=wait_s)
    except Exception as error:  # the SDK has a class of its own for each way to fail
        raise DeployError(f"endpoint {plan.name} is not in service: {error}") from None


def teardown(name: str, resources: Resources) -> tuple[Call, ...]:
    """Return the calls that delete an endpoint, its configuration and models, in this order."""
    wanted = Call("Endpoint", "delete", {"endpoint_name": name})
    endpoint = _find(resources, wanted, "endpoint_name")
    if endpoint is None:
        raise DeployError(f"there is no endpoint {name}")
    config_name = endpoint.endpoint_config_name
    config = resources.EndpointConfig.get(endpoint_config_name=config_name)
    models = sorted({variant.model_name for variant in config.production_variants})
    return (
        wanted,
        Call("EndpointConfig", "delete", {"endpoint_config_name": config_name}),
        *(Call("Model", "delete", {"model_name": model}) for model in models),
    )


def delete(calls: tuple[Call, ...], resources: Resources, say: Say) -> None:
    """Carry the calls of `teardown` out."""
    for call in calls:
        say(str(call))
        getattr(resources, call.resource).get(**call.arguments).delete()


def _run(resources: Resources, call: Call, say: Say) -> Any:
    say(str(call))
    return getattr(getattr(resources, call.resource), call.method)(**call.arguments)


def _find(resources: Resources, call: Call, key: str) -> Any | None:
    """Return the resource if it exists; SageMaker says so by a ValidationException."""
    from botocore.exceptions import ClientError

    try:
        return getattr(resources, call.resource).get(**{key: call.arguments[key]})
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationException":
            raise DeployError(str(error)) from None
        return None
