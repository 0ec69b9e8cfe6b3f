"""`specinfer deploy`: an artefact as a real-time endpoint."""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specinfer.deploy.plan import EndpointPlan

HELP = "make or update a SageMaker endpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of the endpoint")
    parser.add_argument("--image", required=True, help="image of the model server in ECR")
    parser.add_argument("--model", required=True, metavar="S3_URI", help="artefact in S3")
    parser.add_argument("--role", required=True, metavar="ARN", help="execution role")
    parser.add_argument("--instance-type", metavar="TYPE")
    parser.add_argument("--instances", type=int, metavar="N")
    parser.add_argument("--ami", metavar="VERSION", help="inference AMI version")
    parser.add_argument("--startup-timeout", type=int, metavar="SECONDS")
    parser.add_argument("--subnet", action="append", metavar="ID", help="may be repeated")
    parser.add_argument("--security-group", action="append", metavar="ID", help="may be repeated")
    parser.add_argument("--kms-key", metavar="ARN", help="key of the instances' volumes")
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help="container setting")
    parser.add_argument("--dry-run", action="store_true", help="print the calls, make none")


def run(args: argparse.Namespace) -> int:
    from specinfer.deploy.endpoint import deploy, sdk_resources

    plan = plan_of(args)
    if args.dry_run:
        print("\n".join(map(str, plan.calls())))
        return 0
    deploy(plan, sdk_resources(), lambda text: print(text, file=sys.stderr))
    print(plan.name)
    return 0


def plan_of(args: argparse.Namespace) -> "EndpointPlan":
    """Return the plan; what the command line leaves out keeps the plan's own value."""
    from specinfer.deploy.plan import EndpointPlan

    chosen = {
        "instance_type": args.instance_type,
        "instances": args.instances,
        "inference_ami_version": args.ami,
        "startup_timeout_s": args.startup_timeout,
        "subnet_ids": tuple(args.subnet) if args.subnet else None,
        "security_group_ids": tuple(args.security_group) if args.security_group else None,
        "volume_kms_key_arn": args.kms_key,
    }
    return EndpointPlan(
        name=args.name,
        image=args.image,
        role_arn=args.role,
        model_s3_uri=args.model,
        environment=_environment(args.set or []),
        **{name: value for name, value in chosen.items() if value is not None},
    )


def _environment(pairs: list[str]) -> dict[str, str]:
    """Check container settings now rather than when the container starts."""
    from specinfer.server.settings import PREFIX, parse

    environment = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        parse(name, value, shown=f"--set {name}")
        environment[PREFIX + name.upper()] = value
    return environment
