"""Wires the real engine, clocks and random sources to the app and runs it under uvicorn."""

import secrets
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import uvicorn

from specinfer.config import EngineConfig
from specinfer.server.app import create_app
from specinfer.server.backend import Backend, Engine
from specinfer.server.deadline import Deadlines
from specinfer.server.dialects.common import Desk
from specinfer.server.emf import EmfLines
from specinfer.server.errors import SettingsError
from specinfer.server.meters import Meters
from specinfer.server.report import Observer
from specinfer.server.request_log import RequestLog
from specinfer.server.service import Service
from specinfer.server.settings import ServerSettings, Settings

# After the drain, for the last bytes to be sent and the engine to close.
CLOSING_S = 5


class DrainingServer(uvicorn.Server):
    """Uvicorn, telling running generations to come to an end once a stop signal arrives."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.deadlines.shut_down_in(self._service.settings.drain_s)
        super().handle_exit(sig, frame)


def build_service(
    settings: ServerSettings, load: Callable[[], Engine], *, replaces: bool = False
) -> Service:
    """Return a service with the machine's own clocks and randomness."""
    backend = Backend(load, replaces=replaces)
    meters = Meters()
    meters.watch(backend)
    return Service(
        backend=backend,
        settings=settings,
        deadlines=Deadlines(time.monotonic),
        desk=Desk(settings, draw_seed=lambda: secrets.randbits(53)),
        tokenisers=ThreadPoolExecutor(1, thread_name_prefix="tokenise"),
        compilers=ThreadPoolExecutor(1, thread_name_prefix="compile"),
        wall_clock=time.time,
        new_id=lambda: f"specinfer-{uuid.uuid4().hex}",
        meters=meters,
        observers=tuple(_observers(settings)),
    )


def _observers(settings: ServerSettings) -> Iterator[Observer]:
    yield RequestLog()
    if settings.emf:
        yield EmfLines(sys.stdout, time.time)
    if settings.otlp_endpoint:
        yield _spans(settings.otlp_endpoint)


def _spans(endpoint: str) -> Observer:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from specinfer.server.spans import Spans
    except ImportError:
        raise SettingsError("otlp_endpoint needs: pip install specinfer-sagemaker[trace]") from None
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")
    return Spans.export_to(exporter, time.time_ns)


def serve(settings: Settings, listener: socket.socket) -> int:
    """Serve until SIGTERM or SIGINT has drained the server; returns the exit status."""
    service = build_service(
        settings.server,
        lambda: load_engine(settings.engine),
        replaces=settings.engine.tensor_parallel > 1,  # its processes can be started again
    )
    return run_server(service, listener)


def load_engine(config: EngineConfig) -> Engine:
    """Load the engine; its import alone takes seconds, so it too happens behind /ping."""
    from specinfer.parallel.load import load_engine

    return load_engine(config)


def run_server(service: Service, listener: socket.socket) -> int:
    """Run uvicorn on the socket."""
    config = uvicorn.Config(
        create_app(service),
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,  # longer than SageMaker's 60 s, so it never writes to a closed one
        timeout_graceful_shutdown=int(service.settings.drain_s) + CLOSING_S,
    )
    server = DrainingServer(config, service)
    server.run(sockets=[listener])
    return 0 if server.started else 1
