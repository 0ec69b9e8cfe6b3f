"""`specinfer serve`, and the container's `serve`: settings in, a server until SIGTERM."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specinfer.errors import SpecInferError

HELP = "serve the model over HTTP as a SageMaker container does"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="known name or model folder (setting: model, a folder)")
    parser.add_argument("--ssm", type=Path, action="append", help="an SSM or a pool; or none")
    parser.add_argument(
        "--tensor-parallel",
        type=int,
        metavar="N",
        help="processes, one a GPU, that share the LLM (setting: tensor_parallel, SPECINFER_TP)",
    )
    parser.add_argument(
        "--offload", help="where the LLM's layers stay: none, cpu or disk (setting: offload)"
    )
    parser.add_argument("--host", help="address to listen on (setting: host)")
    parser.add_argument("--port", type=int, help="port to listen on (setting: port)")


def run(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> int:
    """Serve until told to stop; raises SpecInferError when that cannot begin."""
    from specinfer.model_store.folder import check_folder
    from specinfer.server.listen import listen
    from specinfer.server.settings import load_settings

    settings = load_settings(environ, _overrides(args, environ))
    check_folder(settings.engine.model)
    for ssm in settings.engine.ssms:
        check_folder(ssm, tokenizer=False)
    if settings.engine.tensor_parallel > 1:
        from specinfer.parallel.load import take_place

        take_place(settings.engine, environ)
    # Uvicorn, having shut down, raises the stop signal once more to end by it.
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, lambda *_: sys.exit(0))
    listener = listen(settings.server.host, settings.server.port)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    from specinfer.server.run import serve  # imports torch, which takes seconds

    return serve(settings, listener)


def _overrides(args: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    from specinfer.model_store import resolve_model
    from specinfer.model_store.pools import ssms_to_serve

    model = resolve_model(args.model) if args.model else None
    ssms = tuple(args.ssm) if args.ssm else None
    if model and not ssms:
        ssms = ssms_to_serve((), args.model, environ) or None
    given = {"model": model, "ssms": ssms, "host": args.host, "port": args.port}
    given |= {"tensor_parallel": args.tensor_parallel, "offload": args.offload}
    return {name: value for name, value in given.items() if value is not None}


def main(argv: Sequence[str] | None = None) -> int:
    """Run as the container does: SageMaker appends the word `serve` to the entry point."""
    parser = argparse.ArgumentParser(prog="serve", description=HELP)
    parser.add_argument("command", nargs="?", choices=["serve"], default="serve")
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except SpecInferError as error:
        print(f"specinfer: {error}", file=sys.stderr)
        return 2
