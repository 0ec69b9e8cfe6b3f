"""An artefact's files under an S3 prefix, each with a checksum that S3 verifies."""

import re
from typing import Any

from specinfer.deploy.artefact import Artefact
from specinfer.deploy.errors import DeployError


def upload(artefact: Artefact, uri: str, s3: Any) -> None:
    """Upload every file; s3 is a boto3 client.  Raises DeployError for a URI without last slash."""
    match = re.fullmatch("s3://([^/]+)/(.+/)", uri)
    if not match:
        raise DeployError(f"{uri!r}: write s3://bucket/prefix/ with the last slash")
    bucket, prefix = match.groups()
    for name in artefact.names:
        s3.upload_file(
            str(artefact.root / name),
            bucket,
            prefix + name,
            ExtraArgs={"ChecksumAlgorithm": "SHA256"},
        )
