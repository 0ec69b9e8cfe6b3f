"""Messages of the AWS event stream encoding, as the SageMaker Runtime sends them.

https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html describes the
frame: lengths, CRC-32 of the two, headers, payload, CRC-32 of everything before.
"""

import json
import struct
import zlib
from collections.abc import Mapping

MEDIA_TYPE = "application/vnd.amazon.eventstream"
# Two lengths and two checksums, four bytes each.
_FRAME_BYTES = 16
_STRING = 7  # the header value type


def payload_part(data: bytes) -> bytes:
    """One PayloadPart event carrying `data`."""
    headers = {
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
        ":message-type": "event",
    }
    return _message(headers, data)


def stream_error(code: str, message: str) -> bytes:
    """A ModelStreamError; `code` is ModelInvocationTimeExceeded or StreamBroken."""
    headers = {
        ":exception-type": "ModelStreamError",
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return _message(headers, json.dumps({"Message": message, "ErrorCode": code}).encode())


def _message(headers: Mapping[str, str], payload: bytes) -> bytes:
    encoded = b"".join(_header(name, value) for name, value in headers.items())
    total = _FRAME_BYTES + len(encoded) + len(payload)
    prelude = struct.pack(">II", total, len(encoded))
    body = prelude + _checksum(prelude) + encoded + payload
    return body + _checksum(body)


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack(">B", len(key)) + key + struct.pack(">BH", _STRING, len(text)) + text


def _checksum(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))
