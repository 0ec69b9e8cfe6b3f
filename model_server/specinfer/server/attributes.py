"""The CustomAttributes header: the one string that SageMaker carries through to the container.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_runtime_InvokeEndpoint.html
"""

import re

from specinfer.server.dialects.totals import Totals

HEADER = "X-Amzn-SageMaker-Custom-Attributes"
MAX_LENGTH = 1024  # of visible US-ASCII
# https://www.w3.org/TR/trace-context/#traceparent-header
TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def read_attributes(header: str) -> dict[str, str]:
    """Read `name=value` pairs between `;` or `,`; what has another form is somebody else's."""
    pairs = (part.partition("=") for part in re.split("[;,]", header))
    return {name.strip(): value.strip() for name, sign, value in pairs if sign}


def traceparent_of(attributes: dict[str, str]) -> str | None:
    """Return the trace context if it is well formed; a broken one must not break a request."""
    given = attributes.get("traceparent", "")
    return given if TRACEPARENT.fullmatch(given) else None


def write_attributes(traceparent: str | None, totals: Totals) -> str:
    """Tell a caller that reads no body, a tracing gateway say, how the time was spent."""
    stats = totals.stats
    values = {
        "queue_ms": stats.queue_ms,
        "prefill_ms": stats.prefill_ms,
        "ssm_ms": stats.ssm_ms,
        "verify_ms": stats.verify_ms,
        "commit_ms": stats.commit_ms,
        "steps": stats.steps,
        "generated_tokens": totals.generated_tokens,
    }
    pairs = [f"{name}={value:.3f}".rstrip("0").rstrip(".") for name, value in values.items()]
    return ";".join([f"traceparent={traceparent}", *pairs] if traceparent else pairs)
