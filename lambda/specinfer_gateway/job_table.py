"""The state of jobs in DynamoDB: one item a job, every change conditional on what was there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from specinfer_gateway.async_endpoint import unavailable
from specinfer_gateway.cache import CONFLICT, TableClient

QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = (
    "queued",
    "running",
    "succeeded",
    "failed",
    "cancelled",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job; addresses are S3's, times are seconds since the epoch."""

    job_id: str
    owner: str
    dialect: str
    digest: str  # SHA-256 of the canonical body
    input: str
    created: int
    ttl: int
    status: str = QUEUED
    output: str = ""
    failure: str = ""
    error_code: str = ""
    error_message: str = ""

    @property
    def ended(self) -> bool:
        return self.status in (SUCCEEDED, FAILED, CANCELLED)


@dataclass(frozen=True, slots=True)
class JobTable:
    """A table with the string key `job_id`; raises GatewayError 503 when it does not answer."""

    client: TableClient
    table: str

    def add(self, job: Job, now: int) -> bool:
        """Add a job unless its id is taken by one that has not expired."""
        return self._conditional(
            lambda: self.client.put_item(
                TableName=self.table,
                Item=_item(job),
                ConditionExpression="attribute_not_exists(job_id) OR #ttl <= :now",
                ExpressionAttributeNames={"#ttl": "ttl"},
                ExpressionAttributeValues={":now": {"N": str(now)}},
            )
        )

    def get(self, job_id: str) -> Job | None:
        """Return a job as it is now."""
        try:
            found = self.client.get_item(
                TableName=self.table, Key={"job_id": {"S": job_id}}, ConsistentRead=True
            )
        except (ClientError, BotoCoreError) as error:
            raise unavailable() from error
        item = found.get("Item")
        return _job(item) if item else None

    def change(self, job_id: str, unless: tuple[str, ...], **changes: str) -> bool:
        """Set attributes unless the job is in one of these states; False if it is, or is gone."""
        names = {f"#{name}": name for name in changes} | {"#status": "status"}
        values = {f":{name}": {"S": value} for name, value in changes.items()}
        barred = {f":barred{i}": {"S": status} for i, status in enumerate(unless)}
        condition = f"attribute_exists(job_id) AND NOT #status IN ({', '.join(barred)})"
        return self._conditional(
            lambda: self.client.update_item(
                TableName=self.table,
                Key={"job_id": {"S": job_id}},
                UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values | barred,
            )
        )

    @staticmethod
    def _conditional(call: Callable[[], Any]) -> bool:
        try:
            call()
        except ClientError as error:
            if error.response["Error"]["Code"] == CONFLICT:
                return False
            raise unavailable() from error
        except BotoCoreError as error:
            raise unavailable() from error
        return True


def _item(job: Job) -> dict[str, Any]:
    values = {field.name: getattr(job, field.name) for field in fields(Job)}
    return {
        name: {"N": str(value)} if isinstance(value, int) else {"S": value}
        for name, value in values.items()
    }


def _job(item: Mapping[str, Any]) -> Job:
    values: dict[str, Any] = {}
    for field in fields(Job):
        attribute = item.get(field.name, {"S": ""})
        values[field.name] = int(attribute["N"]) if "N" in attribute else attribute["S"]
    return Job(**values)
