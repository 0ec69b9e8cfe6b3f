"""`specinfer package`: a model folder as the artefact of a SageMaker model."""

import argparse
from pathlib import Path

HELP = "check a model folder and write the artefact that SageMaker serves"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="model folder, as the container will see it")
    parser.add_argument("--out", type=Path, help="new folder, or file *.tar.gz")
    parser.add_argument("--upload", metavar="S3_URI", help="s3://bucket/prefix/ to upload to")


def run(args: argparse.Namespace) -> int:
    from specinfer.deploy.artefact import check_artefact
    from specinfer.deploy.upload import upload

    artefact = check_artefact(args.folder)
    if args.out is not None:
        write = artefact.write_tar if args.out.name.endswith(".tar.gz") else artefact.write_folder
        write(args.out)
    if args.upload is not None:
        import boto3

        upload(artefact, args.upload, boto3.client("s3"))
    megabytes = artefact.size / 1e6
    print(f"{len(artefact.names)} files, {megabytes:.1f} MB, sha256 {artefact.digest}")
    return 0
