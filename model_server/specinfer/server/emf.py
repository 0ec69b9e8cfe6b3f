"""One CloudWatch line a request: metrics that the log agent extracts from stdout.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from specinfer.server.report import Report
from specinfer.server.sse import ascii_json

NAMESPACE = "SpecInfer"
UNITS = {
    "TotalLatency": "Milliseconds",
    "TimeToFirstToken": "Milliseconds",
    "GeneratedTokens": "Count",
    "TokensPerSecond": "Count/Second",
    "AcceptedTokensPerStep": "Count",
    "TreeVerificationSuccess": "Percent",
    "QueueTime": "Milliseconds",
    "DraftTime": "Milliseconds",
    "VerifyTime": "Milliseconds",
}


@dataclass(frozen=True, slots=True)
class EmfLines:
    """Writes a line for each answered request."""

    out: TextIO
    wall_clock: Callable[[], float]  # seconds since the epoch

    def finished(self, report: Report) -> None:
        values = _values(report)
        if not values:
            return
        metrics = [{"Name": name, "Unit": UNITS[name]} for name in values]
        directive = {"Namespace": NAMESPACE, "Dimensions": [["service"]], "Metrics": metrics}
        header = {"Timestamp": int(self.wall_clock() * 1e3), "CloudWatchMetrics": [directive]}
        line = {"_aws": header, "service": "model-server", "outcome": report.outcome} | values
        print(ascii_json(line), file=self.out, flush=True)


def _values(report: Report) -> dict[str, float]:
    if report.totals is None or report.ttft_s is None:
        return {}
    stats = report.totals.stats
    steps = max(stats.steps, 1)
    values = {
        "TotalLatency": report.total_s * 1e3,
        "TimeToFirstToken": report.ttft_s * 1e3,
        "GeneratedTokens": report.generated_tokens,
        "TokensPerSecond": report.tokens_per_second,
        "AcceptedTokensPerStep": stats.accepted / steps,
        "TreeVerificationSuccess": 100 * sum(stats.accepted_histogram[1:]) / steps,
        "QueueTime": stats.queue_ms,
        "DraftTime": stats.ssm_ms,
        "VerifyTime": stats.verify_ms,
    }
    return {name: round(value, 3) for name, value in values.items()}
