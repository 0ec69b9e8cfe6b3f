"""Puts the gateway together from its environment."""

import time
from collections.abc import Mapping

from aws_lambda_powertools import Logger

from specinfer_gateway.admission import Admission, load_filter
from specinfer_gateway.app import Gateway, build_app
from specinfer_gateway.cache import Cache
from specinfer_gateway.cache_key import Deployment
from specinfer_gateway.clients import Clients
from specinfer_gateway.endpoint import Endpoint
from specinfer_gateway.meter import EmfMeter
from specinfer_gateway.service import Service
from specinfer_gateway.settings import from_environment
from specinfer_gateway.shield import Handler, Shield
from specinfer_gateway.telemetry import NoTracer

SERVICE = "gateway"


def build(environment: Mapping[str, str]) -> Handler:
    """Return the Lambda handler; raises SettingsError."""
    settings = from_environment(environment)
    clients = Clients(settings)
    meter = EmfMeter(SERVICE)
    cache = None
    if settings.cache_table:
        cache = Cache(clients.table, settings.cache_table, settings.cache_ttl_seconds, time.time)
    service = Service(
        endpoint=Endpoint(clients.runtime, settings.endpoint),
        cache=cache,
        deployment=Deployment(settings.model_revision, settings.engine_revision),
        meter=meter,
        tracer=NoTracer(),
        single_flight=settings.single_flight,
    )
    admission = Admission(settings, load_filter(settings.content_filter))
    app = build_app(Gateway(settings, admission, service, time.monotonic))
    return Shield(app, Logger(service=SERVICE), meter, settings.cors_origin)
