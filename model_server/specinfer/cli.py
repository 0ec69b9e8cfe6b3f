"""The `specinfer` command: one sub-command a module, each loaded only when it runs."""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from specinfer import __version__
from specinfer.errors import SpecInferError


class Command(Protocol):
    """What a sub-command's module offers; importing it must not import torch."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


COMMANDS = {
    "generate": "specinfer.generate",
    "local": "specinfer.local.command",
    "serve": "specinfer.server.command",
    "models": "specinfer.model_store.command",
    "train": "specinfer.train.command",
    "bench": "specinfer.bench.command",
    "profile": "specinfer.profile",
    "plan": "specinfer.plan.command",
    "batch": "specinfer.batch.command",
    "package": "specinfer.deploy.commands.package",
    "deploy": "specinfer.deploy.commands.deploy",
    "invoke": "specinfer.deploy.commands.invoke",
    "delete": "specinfer.deploy.commands.delete",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; an expected failure is one line on stderr and exit status 2."""
    args = _parser().parse_args(argv)
    try:
        status = cast(Command, args.command).run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads has had enough, like `| head`: no more goes there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except SpecInferError as error:
        print(f"specinfer: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specinfer",
        description="Lossless tree-based speculative decoding for LLMs (SpecInfer).",
    )
    parser.add_argument("--version", action="version", version=f"specinfer {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = cast(Command, importlib.import_module(module))
        sub = commands.add_parser(name, help=command.HELP, description=command.HELP)
        command.add_arguments(sub)
        sub.set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
