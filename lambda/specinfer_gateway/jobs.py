"""Jobs: generations that outlast API Gateway's 29 s, by SageMaker asynchronous inference.

Order of work, so that no failure loses anything: input to S3, item to DynamoDB, then SageMaker.
The end is learnt from SNS, and from S3 itself whenever somebody asks, should SNS have failed.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from specinfer_gateway.admission import Admission
from specinfer_gateway.async_endpoint import AsyncEndpoint, Objects, failure_of
from specinfer_gateway.body import canonical
from specinfer_gateway.dialects import DIALECTS, Dialect, Document
from specinfer_gateway.errors import GatewayError
from specinfer_gateway.job_table import CANCELLED, FAILED, QUEUED, RUNNING, SUCCEEDED, Job, JobTable

NAMES: Mapping[str, Dialect] = {dialect.name: dialect for dialect in DIALECTS}
UNSUBMITTED = "submission"  # stands in `failure` of a job that SageMaker did not take
SUBMISSION_SECONDS = 60.0  # longer than a function behind API Gateway can live


@dataclass(frozen=True, slots=True)
class Jobs:
    """Begins, shows and ends jobs."""

    table: JobTable
    objects: Objects
    endpoint: AsyncEndpoint
    folder: str  # s3://bucket/prefix
    ttl_seconds: int
    now: Callable[[], float]  # seconds since the epoch

    def begin(self, admission: Admission, body: Document, owner: str, once: str) -> Job:
        """Queue a body of any dialect; `once` is the caller's idempotency key, or empty."""
        request = admission.admit(_dialect_of(body), body)
        if request.stream:
            raise GatewayError(400, "stream_unavailable", "stream: a job has none", param="stream")
        text = canonical(request.body)
        job = self._new(request.dialect, text, owner, once)
        self.objects.write(job.input, text)
        if not self.table.add(job, now=job.created):
            job = self._earlier(job)
            if not self._unsubmitted(job):
                return job
        return self._submit(job)

    def show(self, job_id: str, owner: str) -> tuple[Job, Document | None]:
        """Return a job and, once it has succeeded, its answer."""
        job = self._own(job_id, owner)
        if job.status in (FAILED, CANCELLED):
            return job, None
        raw = self.objects.read(job.output) if job.output else None
        if raw is None and job.status == SUCCEEDED:
            raise GatewayError(410, "result_expired", "the result is no longer stored")
        if raw is None:
            reason = self.objects.read(job.failure) if job.failure else None
            return (job if reason is None else self._fail(job, failure_of(reason.decode()))), None
        answer = NAMES[job.dialect].read(raw)
        if answer is None:
            return self._fail(job, failure_of("")), None
        if not job.ended:
            self.table.change(job_id, unless=(CANCELLED,), status=SUCCEEDED)
        return replace(job, status=SUCCEEDED), answer

    def cancel(self, job_id: str, owner: str) -> None:
        """End a job and delete its data; one still queued at SageMaker finds no input."""
        job = self._own(job_id, owner)
        self.table.change(job_id, unless=(CANCELLED,), status=CANCELLED)
        self._forget(job)

    def settle(self, message: Mapping[str, Any]) -> None:
        """Take SageMaker's notification of an end; safe to repeat, raises if it must be."""
        job = self.table.get(str(message.get("inferenceId")))
        if job is None:
            return
        output = (message.get("responseParameters") or {}).get("outputLocation", "")
        if job.status == CANCELLED:
            self._forget(replace(job, output=output))
        elif message.get("invocationStatus") == "Completed":
            found = {"status": SUCCEEDED, "output": output, "failure": ""}
            self.table.change(job.job_id, unless=(CANCELLED,), **found)
        else:
            self._fail(job, failure_of(str(message.get("failureReason", ""))))

    def _new(self, dialect: Dialect, text: bytes, owner: str, once: str) -> Job:
        seed = json.dumps([owner, once]).encode()
        job_id = hashlib.sha256(seed).hexdigest()[:32] if once else secrets.token_hex(16)
        now, digest = int(self.now()), hashlib.sha256(text).hexdigest()
        return Job(
            job_id=job_id,
            owner=owner,
            dialect=dialect.name,
            digest=digest,
            # Named by its content: another body under the same key must not replace it.
            input=f"{self.folder}/{job_id}/{digest}.json",
            created=now,
            ttl=now + self.ttl_seconds,
        )

    def _earlier(self, job: Job) -> Job:
        earlier = self._own(job.job_id, job.owner)
        if earlier.digest != job.digest:
            message = "Idempotency-Key was used before with another body"
            raise GatewayError(409, "idempotency_mismatch", message, param="Idempotency-Key")
        return earlier

    def _submit(self, job: Job) -> Job:
        try:
            places = self.endpoint.submit(job.job_id, job.input)
        except GatewayError as error:
            # Should SageMaker have taken it all the same, its notification overrules this.
            self._fail(job, {"code": error.code, "message": error.message}, UNSUBMITTED)
            raise
        changes: dict[str, Any] = {
            "status": RUNNING,
            "output": places.output,
            "failure": places.failure,
        }
        # The notification of a fast job may be here already; and should the table not answer now,
        # that notification will bring the output's address.
        with suppress(GatewayError):
            self.table.change(job.job_id, unless=(SUCCEEDED, CANCELLED), **changes)
        return replace(job, **changes)

    def _unsubmitted(self, job: Job) -> bool:
        """Whether SageMaker refused the job, or the function died before it could ask."""
        late = job.status == QUEUED and self.now() - job.created > SUBMISSION_SECONDS
        return job.failure == UNSUBMITTED or late

    def _own(self, job_id: str, owner: str) -> Job:
        job = self.table.get(job_id)
        if job is None or job.owner != owner or job.ttl <= self.now():
            raise GatewayError(404, "job_not_found", f"there is no job {job_id[:64]}", param="id")
        return job

    def _fail(self, job: Job, error: Mapping[str, str], failure: str = "") -> Job:
        changes: dict[str, Any] = {
            "status": FAILED,
            "error_code": error["code"],
            "error_message": error["message"],
            "failure": failure,
        }
        self.table.change(job.job_id, unless=(SUCCEEDED, CANCELLED), **changes)
        return replace(job, **changes)

    def _forget(self, job: Job) -> None:
        for address in filter(None, (job.input, job.output)):
            self.objects.delete(address)


def describe(job: Job, answer: Document | None) -> Document:
    """Return a job as callers see it."""
    document: Document = {
        "id": job.job_id,
        "object": "job",
        "status": job.status,
        "created": job.created,
        "expires": job.ttl,
    }
    if job.status == FAILED:
        document["error"] = {"code": job.error_code, "message": job.error_message}
    return document if answer is None else document | {"result": answer}


def _dialect_of(body: Document) -> Dialect:
    spoken = [dialect for dialect in DIALECTS if dialect.key in body]
    if len(spoken) != 1:
        keys = ", ".join(dialect.key for dialect in DIALECTS)
        raise GatewayError(400, "unknown_dialect", f"the body must have exactly one of {keys}")
    return spoken[0]
