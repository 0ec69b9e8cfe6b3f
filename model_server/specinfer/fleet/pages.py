"""One metrics page for the fleet: the replicas' pages, summed sample by sample.

Counters, histograms and the gauges of batch, queue and cache all add up.  A replica that leaves
takes its counts along, which Prometheus reads as a restart.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

Labels = tuple[tuple[str, str], ...]


def summed(pages: Sequence[bytes]) -> bytes:
    """Return one page with the sum of each sample."""
    families: dict[str, Metric] = {}
    totals: dict[str, dict[tuple[str, Labels], float]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page.decode()):
            if family.name.endswith("_created"):  # times of day do not add up
                continue
            families.setdefault(family.name, family)
            own = totals.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sample.labels.items())
                own[key] = own.get(key, 0.0) + sample.value
    return _written(families, totals)


class _Fixed(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def _written(
    families: dict[str, Metric], totals: dict[str, dict[tuple[str, Labels], float]]
) -> bytes:
    metrics = []
    for name, family in families.items():
        metric = Metric(name, family.documentation, family.type)
        for (sample, labels), value in totals[name].items():
            metric.add_sample(sample, dict(labels), value)
        metrics.append(metric)
    registry = CollectorRegistry()
    registry.register(_Fixed(metrics))
    return generate_latest(registry)
