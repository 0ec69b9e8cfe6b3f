"""What surrounds every buffered event: its report, its id, and no exception gets out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specinfer_gateway.dialects import Document
from specinfer_gateway.errors import GatewayError, openai_error
from specinfer_gateway.flight import encode
from specinfer_gateway.jobs import Jobs
from specinfer_gateway.report import Reporter

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Shield:
    """Wraps the routes; takes SNS's notifications of ended jobs as well."""

    handler: Handler
    reporter: Reporter
    jobs: Jobs | None
    cors_origin: str

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        if "Records" in event:
            return self._settle(event)
        report, fault = self.reporter.begin(event, context), self.reporter.fault
        try:
            response = self.handler(event, context)
        except Exception as error:
            response = proxy_error(fault(error, event, context), openai_error, self.cors_origin)
        headers = response.setdefault("multiValueHeaders", {})
        headers["X-Request-Id"] = [report.request_id]
        report.ended(response["statusCode"], headers.get("X-Cache", [""])[0])
        return response

    def _settle(self, event: dict[str, Any]) -> dict[str, Any]:
        """Take notifications; an exception makes Lambda try again."""
        for record in event["Records"]:
            if self.jobs is not None:
                self.jobs.settle(json.loads(record["Sns"]["Message"]))
        return {}


def proxy_error(
    error: GatewayError, problem: Callable[[GatewayError], Document], cors_origin: str
) -> dict[str, Any]:
    """Return API Gateway's proxy result of an error that no route has told."""
    headers = error.headers() | {
        "Content-Type": "application/json",
        "Access-Control-Allow-Origin": cors_origin,
    }
    return {
        "statusCode": error.status,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "body": encode(problem(error)).decode(),
        "isBase64Encoded": False,
    }
