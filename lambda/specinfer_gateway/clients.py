"""The AWS clients, made once per execution environment, each with time-outs of its own.

boto3 re-sends a POST that timed out, twice by default, and every copy would generate again: the
runtime client makes one attempt.  boto3's clients are botocore's; boto3 itself would add S3's
transfer manager, 100 ms of a cold start.
"""

from functools import cached_property
from typing import Any

from botocore.config import Config
from botocore.session import get_session


class Clients:
    """Clients that are made when first used."""

    def __init__(self) -> None:
        self._session = get_session()

    @cached_property
    def runtime(self) -> Any:
        """SageMaker Runtime: one attempt; SageMaker itself gives up at 60 s.

        https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html
        """
        return self._client("sagemaker-runtime", 1, 70.0)

    @cached_property
    def cache(self) -> Any:
        """DynamoDB as a cache: a slow one is worth less than none."""
        return self._client("dynamodb", 1, 0.5)

    @cached_property
    def jobs(self) -> Any:
        """DynamoDB as the record of jobs."""
        return self._client("dynamodb", 3, 2.0)

    @cached_property
    def objects(self) -> Any:
        """S3, for jobs."""
        return self._client("s3", 3, 5.0)

    @cached_property
    def secrets(self) -> Any:
        """Secrets Manager, for API keys."""
        return self._client("secretsmanager", 2, 2.0)

    def _client(self, service: str, attempts: int, read_timeout: float) -> Any:
        config = Config(
            retries={"mode": "standard", "total_max_attempts": attempts},
            connect_timeout=min(1.0, read_timeout),
            read_timeout=read_timeout,
        )
        return self._session.create_client(service, config=config)
