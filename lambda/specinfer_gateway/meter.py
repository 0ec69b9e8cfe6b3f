"""Figures as CloudWatch's embedded metric format, one line of standard output per request."""

from aws_lambda_powertools.metrics import Metrics, MetricUnit


class EmfMeter:
    """Collects a request's figures; flush writes them."""

    def __init__(self, namespace: str, service: str) -> None:
        self._metrics = Metrics(namespace=namespace, service=service)

    def add(self, name: str, value: float = 1, unit: str = "Count") -> None:
        """Add a figure; unit is one of CloudWatch's names."""
        self._metrics.add_metric(name, MetricUnit(unit), value)

    def flush(self, route: str) -> None:
        """Write what has been collected, with the route as a dimension."""
        if self._metrics.metric_set:
            self._metrics.add_dimension("route", route)
            self._metrics.flush_metrics()
