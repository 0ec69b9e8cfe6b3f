"""Prometheus metrics of `/metrics`, which SageMaker and EKS scrape from the container."""

from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from specinfer.server.backend import Backend, Engine
from specinfer.server.report import CLIENT_GONE, Report

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ACCEPTED = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16)
RATES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class Meters:
    """One registry a server, so that two in a process do not add up."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _counters: dict[str, Counter] = field(default_factory=dict)
    _histograms: dict[str, Histogram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, text, labels in _COUNTERS:
            full = f"specinfer_{name}"
            self._counters[name] = Counter(full, text, labels, registry=self.registry)
        for name, text, buckets in _HISTOGRAMS:
            full = f"specinfer_{name}"
            self._histograms[name] = Histogram(full, text, buckets=buckets, registry=self.registry)

    def watch(self, backend: Backend) -> None:
        """Read the engine's gauges whenever the page is asked for; 0 while there is no engine."""
        for name, text, read in _GAUGES:
            gauge = Gauge(f"specinfer_{name}", text, registry=self.registry)
            gauge.set_function(_reader(backend, read))

    def page(self) -> bytes:
        return generate_latest(self.registry)

    def refused(self, dialect: str, code: str) -> None:
        """Count a request that never reached the engine."""
        self._counters["requests"].labels(dialect, code).inc()

    def finished(self, report: Report) -> None:
        self._counters["requests"].labels(report.dialect, report.outcome).inc()
        if report.outcome == CLIENT_GONE:
            self._counters["requests_cancelled"].inc()
        self._time(report)
        self._count_steps(report)

    def _time(self, report: Report) -> None:
        self._histograms["request_seconds"].observe(report.total_s)
        if report.ttft_s is not None:
            self._histograms["time_to_first_token_seconds"].observe(report.ttft_s)
            self._histograms["tokens_per_second"].observe(report.tokens_per_second)
        for latency in report.itl_s:
            self._histograms["inter_token_seconds"].observe(latency)

    def _count_steps(self, report: Report) -> None:
        counters = self._counters
        counters["generated_tokens"].inc(report.generated_tokens)
        if report.totals is None:
            return
        stats = report.totals.stats
        counters["prompt_tokens"].inc(report.totals.prompt_tokens)
        counters["verify_success"].inc(sum(stats.accepted_histogram[1:]))
        for accepted, steps in enumerate(stats.accepted_histogram):
            for _ in range(steps):  # the client library takes one observation at a time
                self._histograms["accepted_per_step"].observe(accepted)
        counters["verify_steps"].inc(stats.steps)
        counters["plain_steps"].inc(stats.plain_steps)
        counters["accepted_tokens"].inc(stats.accepted)
        self._histograms["queue_seconds"].observe(stats.queue_ms / 1e3)
        for drafter in stats.drafters:
            counters["drafted_tokens"].labels(drafter.name).inc(drafter.drafted)
            counters["ssm_accepted_tokens"].labels(drafter.name).inc(drafter.accepted)


def _reader(backend: Backend, read: Callable[[Engine], float]) -> Callable[[], float]:
    return lambda: read(backend.engine()) if backend.state == "ready" else 0.0


_COUNTERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("requests", "Requests by dialect and outcome (ok or an error code).", ("dialect", "outcome")),
    ("requests_cancelled", "Requests whose caller left.", ()),
    ("prompt_tokens", "Prompt tokens of answered requests.", ()),
    ("generated_tokens", "Tokens generated.", ()),
    ("verify_steps", "LLM steps: one pass over one token tree each.", ()),
    ("plain_steps", "LLM steps without a drafted token: none was at hand or worth a row.", ()),
    ("verify_success", "LLM steps that accepted a drafted token.", ()),
    ("accepted_tokens", "Drafted tokens that became output.", ()),
    ("drafted_tokens", "Tree nodes proposed, by drafter.", ("ssm",)),
    ("ssm_accepted_tokens", "Tree nodes accepted, by drafter.", ("ssm",)),
)
_HISTOGRAMS: tuple[tuple[str, str, tuple[float, ...]], ...] = (
    ("request_seconds", "Whole time of a request.", SECONDS),
    ("time_to_first_token_seconds", "From submission to the first token.", SECONDS),
    ("inter_token_seconds", "Time per token after the first step.", SECONDS),
    ("queue_seconds", "Wait for a place in the batch.", SECONDS),
    ("tokens_per_second", "Tokens per second of one request, its wait included.", RATES),
    ("accepted_per_step", "Drafted tokens accepted in a step.", ACCEPTED),
)
_GAUGES: tuple[tuple[str, str, Callable[[Engine], float]], ...] = (
    ("batch_requests", "Requests in the engine's batch.", lambda engine: engine.running),
    ("queued_requests", "Requests waiting for the batch.", lambda engine: engine.queued),
    ("kv_blocks_used", "Pages of the KV cache in use.", lambda engine: engine.cache.used),
    ("kv_blocks_total", "Pages of the KV cache.", lambda engine: engine.cache.pages),
)
