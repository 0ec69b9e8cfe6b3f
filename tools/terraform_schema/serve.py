"""Serve the schema providers to Terraform on loopback, through TF_REATTACH_PROVIDERS."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]

from terraform_schema.catalogue import PROVIDERS, load_schema
from terraform_schema.provider import SchemaProvider
from terraform_schema.wire import METHODS, SERVICE, messages

_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@contextmanager
def schema_providers() -> Iterator[dict[str, str]]:
    """Run every provider; yields the environment variables that lead Terraform to them."""
    classes = messages()
    servers: list[grpc.Server] = []
    reattach: dict[str, Any] = {}
    try:
        for name in PROVIDERS:
            server = grpc.server(ThreadPoolExecutor(4), options=_UNLIMITED)
            servers.append(server)
            provider = SchemaProvider(load_schema(name), classes)
            server.add_generic_rpc_handlers((_handlers(provider, classes),))
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            reattach[f"registry.terraform.io/hashicorp/{name}"] = _address(port)
        yield {"TF_REATTACH_PROVIDERS": json.dumps(reattach)}
    finally:
        for server in servers:
            server.stop(grace=None)


def _handlers(provider: SchemaProvider, classes: Any) -> grpc.GenericRpcHandler:
    def handler(method: str, request: str) -> grpc.RpcMethodHandler:
        call: Callable[[Any], Any] = getattr(provider, method)
        return grpc.unary_unary_rpc_method_handler(
            lambda message, context: call(message),
            request_deserializer=classes[request].FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    methods = {name: handler(name, request) for name, (request, _) in METHODS.items()}
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def _address(port: int) -> dict[str, Any]:
    return {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": os.getpid(),
        "Test": True,  # Terraform must not kill this process when it is done
        "Addr": {"Network": "tcp", "String": f"127.0.0.1:{port}"},
    }
