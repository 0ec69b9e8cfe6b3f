"""The JSON of a request: read strictly from an API Gateway event, written canonically."""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any

from specinfer_gateway.errors import GatewayError

# An answer has its properties in the order of the schema in here.
ORDERED = frozenset({"response_format", "structured_outputs", "guided_json", "grammar"})


def read_body(event: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """Return the body's JSON object; raises GatewayError 400 or 413."""
    raw = _raw(event)
    if len(raw) > max_bytes:
        raise GatewayError(
            413, "body_too_large", f"the body has {len(raw)} bytes; the limit is {max_bytes}"
        )
    document = _parse(raw)
    if not isinstance(document, dict):
        raise GatewayError(400, "invalid_json", "the body must be a JSON object")
    return document


def canonical(value: object) -> bytes:
    """Return one spelling for equal JSON: sorted keys, no spaces, 1.0 as 1, ASCII.

    What is under a key in ORDERED stays as it is.
    """
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False).encode()


def _raw(event: Mapping[str, Any]) -> bytes:
    text = event.get("body")
    if not text:
        raise GatewayError(400, "invalid_json", "the body is empty; expected a JSON object")
    if not event.get("isBase64Encoded"):
        return str(text).encode(errors="surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise GatewayError(400, "invalid_json", "the body is not valid base64") from None


def _parse(raw: bytes) -> object:
    try:
        document = json.loads(raw.decode(), parse_constant=_refuse, parse_float=_finite)
        # A lone surrogate is legal JSON but no text: no tokenizer could read it.
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise GatewayError(400, "invalid_json", "the body is nested too deeply") from None
    except UnicodeError:
        raise GatewayError(400, "invalid_json", "the body is not valid UTF-8") from None
    except ValueError as error:
        raise GatewayError(400, "invalid_json", f"the body is not JSON: {error}") from None
    return document


def _refuse(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else float(str(_refuse(text)))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda pair: pair[0])
        return {key: item if key in ORDERED else _plain(item) for key, item in items}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
