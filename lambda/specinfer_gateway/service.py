"""One generation: served from the cache, or asked of the endpoint exactly once."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specinfer_gateway.admission import Request
from specinfer_gateway.body import canonical
from specinfer_gateway.breaker import Breaker
from specinfer_gateway.cache import Cache
from specinfer_gateway.cache_key import Deployment, cache_key
from specinfer_gateway.deadline import Deadline
from specinfer_gateway.dialects import Dialect, Document
from specinfer_gateway.endpoint import Endpoint
from specinfer_gateway.errors import GatewayError
from specinfer_gateway.flight import Answer, Flight, encode
from specinfer_gateway.telemetry import Meter, Tracer, meter_generation, trace_generation


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller's Cache-Control allows."""

    read: bool = True
    write: bool = True


@dataclass(frozen=True, slots=True)
class Service:
    """Answers requests; cache is None when the deployment has no table."""

    endpoint: Endpoint
    cache: Cache | None
    deployment: Deployment
    meter: Meter
    tracer: Tracer
    breaker: Breaker
    single_flight: bool = True
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time

    def answer(self, request: Request, wish: Wish, deadline: Deadline) -> Answer:
        """Return the answer; raises GatewayError."""
        key = cache_key(request, self.deployment)

        def generate() -> Document:
            return self.generate(request, deadline)

        if self.cache is None or self.breaker.open or key is None or not wish.write:
            self.meter.add("CacheBypass")
            return Answer(encode(generate()), "BYPASS")
        flight = Flight(
            cache=self.cache,
            key=key,
            owner=secrets.token_hex(8),
            dialect=request.dialect,
            generate=generate,
            deadline=deadline,
            meter=self.meter,
            tracer=self.tracer,
            breaker=self.breaker,
            sleep=self.sleep,
            shared=self.single_flight,
        )
        return flight.answer() if wish.read else flight.renew()

    def generate(self, request: Request, deadline: Deadline) -> Document:
        """Ask the container, once; raises GatewayError, also for an answer of a strange shape."""
        started = self.now()
        with self.tracer.section("sagemaker.invoke"):
            raw = self.endpoint.invoke(canonical(request.body), deadline, self.tracer.traceparent)
            answer = _read(request.dialect, raw)
            ended = self.now()
            speculation = request.dialect.speculation(answer)
            trace_generation(self.tracer, started, ended, speculation)
        tokens = request.dialect.generated(answer)
        meter_generation(self.meter, ended - started, tokens, speculation)
        return answer

    def stream(self, request: Request, deadline: Deadline) -> Iterator[bytes]:
        """Yield the container's stream, which is never kept; raises GatewayError."""
        with self.tracer.section("sagemaker.invoke"):
            return self.endpoint.stream(canonical(request.body), deadline, self.tracer.traceparent)


def _read(dialect: Dialect, raw: bytes) -> Document:
    answer = dialect.read(raw)
    if answer is None:
        raise GatewayError(502, "model_error", "the model's answer could not be read")
    if dialect.finish(answer).get("finish_reason") in ("error", "cancelled"):
        raise GatewayError(502, "model_error", "the model broke off its answer")
    return answer
