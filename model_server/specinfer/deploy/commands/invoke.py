"""`specinfer invoke`: one prompt to an endpoint."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

HELP = "send a prompt to a SageMaker endpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the endpoint")
    parser.add_argument("prompt")
    parser.add_argument("--max-new-tokens", type=int)
    parser.add_argument("--stream", action="store_true", help="show the answer as it grows")


def run(args: argparse.Namespace) -> int:
    # boto3, not the SDK's Endpoint: the latter's streaming call fails in sagemaker 3.27.0.
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    from specinfer.deploy.errors import DeployError

    # One attempt: a retry would generate the same answer a second time.
    once = Config(retries={"mode": "standard", "total_max_attempts": 1}, read_timeout=70)
    try:
        runtime = boto3.client("sagemaker-runtime", config=once)
        for text in _texts(runtime, args):
            print(text, end="", flush=True)
    except (BotoCoreError, ClientError) as error:
        raise DeployError(str(error)) from None
    print(file=sys.stdout)
    return 0


def _texts(runtime: Any, args: argparse.Namespace) -> Iterator[str]:
    limit = {} if args.max_new_tokens is None else {"max_new_tokens": args.max_new_tokens}
    body: dict[str, Any] = {"inputs": args.prompt, "parameters": limit, "stream": args.stream}
    call = {
        "EndpointName": args.name,
        "ContentType": "application/json",
        "Body": json.dumps(body).encode(),
    }
    if args.stream:
        yield from streamed_texts(runtime.invoke_endpoint_with_response_stream(**call)["Body"])
    else:
        answer = json.loads(runtime.invoke_endpoint(**call)["Body"].read())
        yield (answer[0] if isinstance(answer, list) else answer)["generated_text"]


def streamed_texts(events: Any) -> Iterator[str]:
    """Yield the text of a TGI stream, whose lines payload parts may cut anywhere."""
    from specinfer.deploy.errors import DeployError

    rest = b""
    for event in events:
        *lines, rest = (rest + event["PayloadPart"]["Bytes"]).split(b"\n")
        for line in filter(None, lines):
            document = json.loads(line.removeprefix(b"data: "))
            if "error" in document:
                raise DeployError(f"the endpoint failed: {document['error']}")
            yield document["token"]["text"]
