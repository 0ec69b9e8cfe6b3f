"""The Ray Serve application: autoscaled replicas, Ray's own router, one front.

Routing is by load (the less busy of two replicas drawn at random) or by prefix: prompts that begin
alike go to one replica, whose cache holds their pages, and to the next on Ray's hash ring when
that is full.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from specinfer.errors import ConfigError
from specinfer.fleet.call import Call, Part
from specinfer.fleet.errors import FleetBusyError, ReplicaLostError
from specinfer.fleet.front import Front
from specinfer.fleet.replica import Replica

try:
    from ray import serve
    from ray.exceptions import ActorUnavailableError, RayActorError, WorkerCrashedError
    from ray.serve.config import AutoscalingConfig, RequestRouterConfig
    from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
except ImportError as missing:
    raise ConfigError(f"a fleet needs: pip install specinfer-sagemaker[ray] ({missing})") from None

ROUTERS = {
    "least_loaded": RequestRouterConfig(),  # Ray's default
    "prefix": RequestRouterConfig(
        request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
    ),
}
DEFAULTS = {
    "routing": "least_loaded",
    "min_replicas": "1",
    "max_replicas": "8",
    "target_requests": "16",
}
LOSSES = (RayActorError, ActorUnavailableError, WorkerCrashedError)


class RayReplicas:
    """The replicas behind a deployment's handle."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def call(self, call: Call) -> AsyncIterator[Part]:
        handle = self._handle.options(stream=True, session_id=call.affinity)
        try:
            async for part in handle.answer.remote(call):
                yield part
        except BackPressureError as error:
            raise FleetBusyError(str(error)) from None
        except (*LOSSES, DeploymentUnavailableError) as error:
            raise ReplicaLostError(str(error)) from None

    async def pages(self) -> list[bytes]:
        pages: list[bytes] = await self._handle.broadcast("page").results_async()
        return pages


class Deployed(Replica):
    """A replica in a worker process of Ray, which has configured only Ray's own log."""

    def __init__(self) -> None:
        logging.basicConfig(level=logging.INFO)
        super().__init__()


class Entrance:
    """The deployment that Ray's proxies hand HTTP requests to."""

    def __init__(self, replicas: Any) -> None:
        self._front = Front(RayReplicas(replicas))

    async def __call__(self, request: Request) -> Response:
        return await self._front.answer(request)


def build(args: Mapping[str, str]) -> Any:
    """Return the application; args: routing, min_replicas, max_replicas, target_requests.

    Raises ConfigError.  A Serve configuration may set everything else per deployment.
    """
    chosen = _chosen(args)
    replicas = serve.deployment(
        Deployed,
        name="SpecInfer",
        max_ongoing_requests=32,
        max_queued_requests=256,
        autoscaling_config=AutoscalingConfig(
            min_replicas=int(chosen["min_replicas"]),
            max_replicas=int(chosen["max_replicas"]),
            target_ongoing_requests=int(chosen["target_requests"]),
        ),
        request_router_config=ROUTERS[chosen["routing"]],
        graceful_shutdown_timeout_s=480,  # a stream may take its 470 s
        health_check_period_s=2,
    )
    entrance = serve.deployment(
        Entrance,
        name="Front",
        num_replicas=2,  # one that dies loses what it was handing on
        max_ongoing_requests=1024,
        ray_actor_options={"num_cpus": 0},
    )
    return entrance.bind(replicas.bind())


def _chosen(args: Mapping[str, str]) -> dict[str, str]:
    unknown = sorted(args.keys() - DEFAULTS.keys())
    if unknown:
        raise ConfigError(f"fleet: {', '.join(unknown)} not one of {', '.join(DEFAULTS)}")
    chosen = {**DEFAULTS, **args}
    if chosen["routing"] not in ROUTERS:
        raise ConfigError(f"fleet: routing {chosen['routing']!r} is not one of {sorted(ROUTERS)}")
    return chosen
