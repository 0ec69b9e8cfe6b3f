"""`specinfer local up`: the whole service on this machine."""

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from specinfer.local.errors import LocalStackError
from specinfer.local.ports import Listeners, Ports

if TYPE_CHECKING:
    from specinfer.local.stack import Stack, StackSettings

HELP = "run the whole service on this machine, from the REST API to the engine"

# Its answer repeats many of the question's words: that is what look-up drafting lives on.
PROMPT = (
    "Write this text out again, with every spelling mistake corrected:\n\n"
    "The lighthouse stood at the end of the pier. Every evening the keeper climbed the narow "
    "stairs, lit the lamp, and watched the boats come home. When the fog was thick, he rang the "
    "bell until the last boat was safe."
)
ANSWER_TOKENS = 96
NEEDS = ("httpx", "uvicorn", "starlette", "moto", "werkzeug", "boto3", "aws_lambda_powertools")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = actions.add_parser("up", help="start everything, ask one question, serve until Ctrl-C")
    up.add_argument("--model", default="default", help="a known name or a Hugging Face folder")
    up.add_argument(
        "--ssm",
        action="append",
        default=[],
        help="an SSM or a pool, repeatable; none: not even the one shipped for the model",
    )
    up.add_argument("--prompt", default=PROMPT, help="the first question")
    up.add_argument(
        "--once",
        nargs="?",
        const="",
        metavar="PROMPT",
        help="stop after the first question (PROMPT, if given)",
    )
    up.add_argument("--gateway", type=Path, help="folder with the Lambda's handler.py")
    ports = Ports()
    for option, default, use in (
        ("--port", ports.rest, "the REST API"),
        ("--container-port", ports.container, "the container"),
        ("--runtime-port", ports.runtime, "the SageMaker Runtime"),
        ("--dynamodb-port", ports.dynamodb, "DynamoDB"),
    ):
        text = f"where {use} listens (%(default)s; 0: any free port)"
        up.add_argument(option, type=int, default=default, help=text)


def run(args: argparse.Namespace) -> int:
    import asyncio

    for package in NEEDS:
        if importlib.util.find_spec(package) is None:
            raise LocalStackError(
                f"the laptop stack needs {package}: pip install 'specinfer-sagemaker[local]'"
            )
    ports = Ports(
        rest=args.port,
        container=args.container_port,
        runtime=args.runtime_port,
        dynamodb=args.dynamodb_port,
    )
    with Listeners(ports) as listeners:
        settings = _settings(args)
        prompt = args.once or args.prompt
        asyncio.run(_until_signalled(settings, listeners, prompt, args.once is not None))
    # Kept when an error, which names them, has passed here instead.
    shutil.rmtree(settings.logs)
    return 0


def _settings(args: argparse.Namespace) -> "StackSettings":
    """Fetches the models if need be."""
    from specinfer.local.stack import StackSettings
    from specinfer.model_store import resolve_model
    from specinfer.model_store.pools import ssms_to_serve

    return StackSettings(
        gateway=_gateway(args.gateway),
        model=resolve_model(args.model),
        ssms=ssms_to_serve(args.ssm, args.model, os.environ),
        logs=Path(tempfile.mkdtemp(prefix="specinfer-")),
    )


def _gateway(given: Path | None) -> Path:
    """The Lambda's folder: beside model_server/ in a source checkout, in no wheel."""
    folder: Path = given or Path(__file__).resolve().parents[3] / "lambda"
    if not (folder / "handler.py").is_file():
        raise LocalStackError(
            f"{folder} has no handler.py; `specinfer local up` needs the project's lambda/ folder: "
            "run it from a source checkout or name the folder with --gateway"
        )
    return folder


async def _until_signalled(
    settings: "StackSettings", listeners: Listeners, prompt: str, once: bool
) -> None:
    """Ctrl-C and SIGTERM are the ordinary ends of a server, not failures."""
    import asyncio
    import signal

    up = asyncio.create_task(_up(settings, listeners, prompt, once))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, up.cancel)
    try:
        await up
    except asyncio.CancelledError:
        print("\nspecinfer: stopped", file=sys.stderr)


async def _up(settings: "StackSettings", listeners: Listeners, prompt: str, once: bool) -> None:
    from specinfer.local import stack
    from specinfer.model_store import Progress

    progress, started = Progress(), time.monotonic()
    progress.say("starting: REST API > Lambda > SageMaker Runtime > container; DynamoDB")
    async with stack.running(settings, listeners, progress) as running:
        progress.say(f"ready ({time.monotonic() - started:.0f} s)")
        await stack.guarded(running.container, _serve(running, settings.logs, prompt, once))


async def _serve(stack: "Stack", logs: Path, prompt: str, once: bool) -> None:
    import asyncio

    from specinfer.local import report
    from specinfer.local.ask import ask

    answer = await ask(stack.client, stack.rest, prompt, ANSWER_TOKENS)
    again = await ask(stack.client, stack.rest, prompt, ANSWER_TOKENS)
    print(report.answered(prompt, answer, again))
    print(report.addresses(stack), flush=True)
    if once:
        print("\nWithout --once it stays up.", flush=True)
    else:
        print(f"\nLogs: {logs}. Ctrl-C stops it.", flush=True)
        await asyncio.Event().wait()
