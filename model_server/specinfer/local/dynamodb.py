"""DynamoDB on loopback: moto's server with the gateway's table in it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from specinfer.local.ports import url_of

TABLE = "specinfer-responses"
REGION = "us-east-1"
# moto finds the service by the credential's scope and checks no signature.
_AUTHORIZATION = (
    f"AWS4-HMAC-SHA256 Credential=local/20260101/{REGION}/dynamodb/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


class _Quiet(MotoRequestHandler):
    def log(self, *_: object) -> None:
        """werkzeug's would print a line a request in the user's terminal."""


@contextmanager
def dynamodb(listener: socket.socket) -> Iterator[str]:
    """Serves from a thread; yields the base URL once the table is there."""
    host, port = listener.getsockname()
    server = make_server(
        host,
        port,
        DomainDispatcherApplication(create_backend_app),
        threaded=True,
        request_handler=_Quiet,
        fd=listener.fileno(),
    )
    thread = threading.Thread(target=server.serve_forever, name="dynamodb", daemon=True)
    thread.start()
    try:
        create_table(url_of(listener))
        yield url_of(listener)
        # moto's state is the process's, not the server's.
        _call(url_of(listener), "DeleteTable", {"TableName": TABLE})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def create_table(url: str) -> None:
    """The table as terraform makes it: `cache_key` is its only key, `ttl` ends an item."""
    _call(
        url,
        "CreateTable",
        {
            "TableName": TABLE,
            "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": [{"AttributeName": "cache_key", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "cache_key", "AttributeType": "S"}],
        },
    )
    ttl = {"Enabled": True, "AttributeName": "ttl"}
    _call(url, "UpdateTimeToLive", {"TableName": TABLE, "TimeToLiveSpecification": ttl})


def _call(url: str, operation: str, arguments: dict[str, Any]) -> None:
    """Plain HTTP: boto3 would read the user's own AWS profile first."""
    headers = {
        "Authorization": _AUTHORIZATION,
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": f"DynamoDB_20120810.{operation}",
    }
    with httpx.Client(trust_env=False, timeout=30) as client:
        client.post(url, content=json.dumps(arguments), headers=headers).raise_for_status()
