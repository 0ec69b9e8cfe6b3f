"""`specinfer delete`: an endpoint and what was made for it."""

import argparse
import sys

HELP = "delete a SageMaker endpoint, its configuration and its models"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the endpoint")
    parser.add_argument("--dry-run", action="store_true", help="print the calls, make none")


def run(args: argparse.Namespace) -> int:
    from specinfer.deploy.endpoint import delete, sdk_resources, teardown

    resources = sdk_resources()
    calls = teardown(args.name, resources)
    if args.dry_run:
        print("\n".join(map(str, calls)))
    else:
        delete(calls, resources, lambda text: print(text, file=sys.stderr))
    return 0
