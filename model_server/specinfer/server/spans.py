"""Each request as OpenTelemetry spans: a parent from the caller's trace, a child a phase.

The phases interleave step by step; their spans show each one's total, laid end to end.
"""

from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from specinfer.server.report import Report

PHASES = ("queue", "prefill", "ssm", "verify", "commit")


@dataclass(frozen=True, slots=True)
class Spans:
    """Exports the spans of every finished request; the provider sends the last at exit."""

    provider: TracerProvider
    wall_clock_ns: Callable[[], int]

    @classmethod
    def export_to(cls, exporter: SpanExporter, wall_clock_ns: Callable[[], int]) -> "Spans":
        provider = TracerProvider(resource=Resource.create({"service.name": "specinfer"}))
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider, wall_clock_ns)

    def finished(self, report: Report) -> None:
        end = self.wall_clock_ns()
        start = end - int(report.total_s * 1e9)
        carrier = {"traceparent": report.caller.traceparent or ""}
        span = self.provider.get_tracer("specinfer.server").start_span(
            "generate",
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            start_time=start,
            attributes={
                "http.route": report.caller.route,
                "specinfer.dialect": report.dialect,
                "specinfer.outcome": report.outcome,
            },
        )
        if report.outcome != "ok":
            span.set_status(Status(StatusCode.ERROR, report.outcome))
        self._phases(span, report, start)
        span.end(end)

    def _phases(self, parent: Span, report: Report, start: int) -> None:
        if report.totals is None:
            return
        stats = report.totals.stats
        parent.set_attribute("specinfer.steps", stats.steps)
        parent.set_attribute("specinfer.tokens_per_step", stats.tokens_per_step)
        parent.set_attribute("gen_ai.usage.output_tokens", report.totals.generated_tokens)
        tracer = self.provider.get_tracer("specinfer.server")
        for phase in PHASES:
            end = start + int(getattr(stats, f"{phase}_ms") * 1e6)
            child = tracer.start_span(phase, set_span_in_context(parent), start_time=start)
            child.end(end)
            start = end
