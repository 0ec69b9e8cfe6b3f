"""Puts the gateway together from its environment."""

import os
import time
from collections.abc import Mapping

from aws_lambda_powertools import Logger

from specinfer_gateway.admission import Admission, load_filter
from specinfer_gateway.api_keys import ApiKeys
from specinfer_gateway.app import build_app
from specinfer_gateway.async_endpoint import AsyncEndpoint, Objects
from specinfer_gateway.breaker import Breaker
from specinfer_gateway.cache import Cache
from specinfer_gateway.cache_key import Deployment
from specinfer_gateway.call import Gateway
from specinfer_gateway.clients import Clients
from specinfer_gateway.endpoint import Endpoint
from specinfer_gateway.job_table import JobTable
from specinfer_gateway.jobs import Jobs
from specinfer_gateway.meter import EmfMeter
from specinfer_gateway.report import Reporter
from specinfer_gateway.service import Service
from specinfer_gateway.settings import Settings, from_environment
from specinfer_gateway.shield import Shield
from specinfer_gateway.stream_app import StreamApp
from specinfer_gateway.telemetry import Meter, NoTracer, Tracer
from specinfer_gateway.tracing import TRACE_VARIABLE, XRayTracer, daemon

CACHE_REST_SECONDS = 10.0
SERVICE, NAMESPACE = "gateway", "SpecInfer"


def build(environment: Mapping[str, str]) -> Shield:
    """Return the handler of buffered events; raises SettingsError."""
    return _shielded(*_gateway(environment))


def build_streaming(environment: Mapping[str, str]) -> StreamApp:
    """Return what answers every event as a stream; raises SettingsError."""
    gateway, reporter = _gateway(environment)
    return StreamApp(gateway, _shielded(gateway, reporter), reporter)


def _shielded(gateway: Gateway, reporter: Reporter) -> Shield:
    app = build_app(gateway, reporter.fault)
    return Shield(app, reporter, gateway.jobs, gateway.settings.cors_origin)


def _gateway(environment: Mapping[str, str]) -> tuple[Gateway, Reporter]:
    settings = from_environment(environment)
    namespace = environment.get("POWERTOOLS_METRICS_NAMESPACE", NAMESPACE)
    clients, meter = Clients(), EmfMeter(namespace, SERVICE)
    gateway = Gateway(
        settings=settings,
        admission=Admission(settings, load_filter(settings.content_filter)),
        service=_service(settings, clients, meter, _tracer(environment)),
        keys=_keys(settings, clients),
        jobs=_jobs(settings, clients),
        clock=time.monotonic,
    )
    return gateway, Reporter(Logger(service=SERVICE), meter)


def _service(settings: Settings, clients: Clients, meter: Meter, tracer: Tracer) -> Service:
    cache = None
    if settings.cache_table:
        cache = Cache(clients.cache, settings.cache_table, settings.cache_ttl_seconds, time.time)
    return Service(
        endpoint=Endpoint(clients.runtime, settings.endpoint, settings.inference_component),
        cache=cache,
        deployment=Deployment(settings.model_revision, settings.engine_revision),
        meter=meter,
        tracer=tracer,
        breaker=Breaker(time.monotonic, CACHE_REST_SECONDS),
        single_flight=settings.single_flight,
    )


def _tracer(environment: Mapping[str, str]) -> Tracer:
    send = daemon(environment)
    if send is None:
        return NoTracer()
    # The runtime sets the variable of the process, not of the mapping given here.
    return XRayTracer(send, lambda: os.environ.get(TRACE_VARIABLE, ""))


def _keys(settings: Settings, clients: Clients) -> ApiKeys | None:
    if not settings.api_keys_secret:
        return None

    def fetch() -> str:
        secret = clients.secrets.get_secret_value(SecretId=settings.api_keys_secret)
        return str(secret["SecretString"])

    return ApiKeys(fetch, settings.api_keys_max_age_seconds, time.monotonic)


def _jobs(settings: Settings, clients: Clients) -> Jobs | None:
    if not settings.jobs_table:
        return None
    return Jobs(
        table=JobTable(clients.jobs, settings.jobs_table),
        objects=Objects(clients.objects),
        endpoint=AsyncEndpoint(clients.runtime, settings.async_endpoint),
        folder=f"s3://{settings.jobs_bucket}/jobs",
        ttl_seconds=settings.jobs_ttl_seconds,
        now=time.time,
    )
