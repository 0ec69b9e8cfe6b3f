"""One log line a request: lengths and timings, never a word of a prompt or an answer."""

import logging

from specinfer.server.report import Report

log = logging.getLogger(__name__)


class RequestLog:
    """Writes the line."""

    def finished(self, report: Report) -> None:
        ttft = "-" if report.ttft_s is None else f"{report.ttft_s * 1e3:.0f}ms"
        log.info(
            "%s %s outcome=%s tokens=%d steps=%d ttft=%s total=%.0fms",
            report.caller.route,
            report.dialect,
            report.outcome,
            report.generated_tokens,
            report.totals.stats.steps if report.totals else 0,
            ttft,
            report.total_s * 1e3,
        )
