"""Jobs over asynchronous inference: every part may fail, and nothing is lost."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from specinfer_gateway.async_endpoint import AsyncEndpoint, Objects
from specinfer_gateway.job_table import JobTable
from specinfer_gateway.jobs import Jobs
from specinfer_gateway.report import Reporter
from specinfer_gateway.shield import Shield

BODY = {"inputs": "hi", "parameters": {"max_new_tokens": 2000}}
BUCKET = "jobs-bucket"


class Faulty:
    """A client whose named operation fails while `broken` says so."""

    def __init__(self, client: Any) -> None:
        self.client, self.broken = client, ""

    def __getattr__(self, name: str) -> Any:
        def fail(**_: Any) -> None:
            raise ConnectTimeoutError(endpoint_url="x")

        return fail if name == self.broken else getattr(self.client, name)


class FakeAsync:
    """SageMaker's asynchronous endpoint, worked by hand."""

    def __init__(self, s3: Any) -> None:
        self.s3, self.queue, self.error = s3, [], None

    def invoke_endpoint_async(self, **arguments: Any) -> dict[str, Any]:
        if self.error:
            raise ClientError({"Error": {"Code": self.error, "Message": ""}}, "InvokeEndpointAsync")
        self.queue.append(arguments)
        number = len(self.queue)
        return {
            "OutputLocation": f"s3://{BUCKET}/out/{number}.out",
            "FailureLocation": f"s3://{BUCKET}/failed/{number}.out",
        }

    def write(self, folder: str, number: int, body: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=f"{folder}/{number}.out", Body=body)

    def read_input(self, number: int) -> Any:
        key = self.queue[number - 1]["InputLocation"].removeprefix(f"s3://{BUCKET}/")
        return json.loads(self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())


@pytest.fixture(scope="module")
def stores(aws):
    s3, dynamodb = aws("s3"), aws("dynamodb")
    s3.create_bucket(Bucket=BUCKET)
    dynamodb.create_table(
        TableName="jobs",
        KeySchema=[{"AttributeName": "job_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "job_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return s3, dynamodb


@pytest.fixture
def worker(caller, stores):
    s3, dynamodb = stores
    worker = FakeAsync(s3)
    worker.objects, worker.table = Faulty(s3), Faulty(dynamodb)
    caller.jobs = Jobs(
        table=JobTable(worker.table, "jobs"),
        objects=Objects(worker.objects),
        endpoint=AsyncEndpoint(worker, "async"),
        folder=f"s3://{BUCKET}/jobs",
        ttl_seconds=1_000,
        now=caller.clock,
    )
    yield worker
    for item in dynamodb.scan(TableName="jobs")["Items"]:
        dynamodb.delete_item(TableName="jobs", Key={"job_id": item["job_id"]})
    for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        s3.delete_object(Bucket=BUCKET, Key=found["Key"])


def begin(caller, headers=None):
    reply = caller.post("/v1/jobs", BODY, headers)
    assert reply.status == 202, reply.text
    return reply.json["id"]


def show(caller, job_id):
    return caller.send(caller.event("GET", f"/v1/jobs/{job_id}"))


def notify(caller, job_id, status, **more):
    """Deliver SageMaker's notification as SNS would."""
    message = {"invocationStatus": status, "inferenceId": job_id} | more
    event = {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps(message)}}]}
    return Shield(None, Reporter(None, None), caller.jobs, "*")(event, None)


def completed(number):
    return {"responseParameters": {"outputLocation": f"s3://{BUCKET}/out/{number}.out"}}


def test_a_job_is_queued_run_and_fetched(caller, worker):
    reply = caller.post("/v1/jobs", BODY)
    job_id = reply.json["id"]
    assert (reply.status, reply.json["status"]) == (202, "running")
    assert reply.headers["Location"] == f"/v1/jobs/{job_id}"
    assert worker.read_input(1) == BODY
    assert worker.queue[0]["InferenceId"] == job_id
    assert show(caller, job_id).json["status"] == "running"
    worker.write("out", 1, caller.runtime.tgi())
    notify(caller, job_id, "Completed", **completed(1))
    done = show(caller, job_id).json
    assert (done["status"], done["result"]["generated_text"]) == ("succeeded", "an answer")


def test_a_lost_notification_is_made_good_by_asking(caller, worker):
    job_id = begin(caller)
    worker.write("out", 1, caller.runtime.tgi())
    assert show(caller, job_id).json["status"] == "succeeded"


def test_a_failure_tells_the_containers_words_and_no_address(caller, worker):
    job_id = begin(caller)
    refusal = '{"error": "inputs: 9 tokens exceed 8", "code": "context_length_exceeded"}'
    reason = f"Received client error (422) from primary with message {refusal!s}. See https://x"
    notify(caller, job_id, "Failed", failureReason=reason)
    failed = show(caller, job_id).json
    assert failed["status"] == "failed"
    assert failed["error"] == {
        "code": "context_length_exceeded",
        "message": "inputs: 9 tokens exceed 8",
    }


def test_a_failure_is_also_found_in_s3(caller, worker):
    job_id = begin(caller)
    worker.write("failed", 1, b"Received server error (500) from primary; see arn:aws:logs:x")
    failed = show(caller, job_id).json
    assert (failed["status"], failed["error"]["code"]) == ("failed", "model_error")
    assert "arn" not in json.dumps(failed)


def test_a_cancelled_job_leaves_no_data_even_when_it_ends_later(caller, worker):
    job_id = begin(caller)
    reply = caller.send(caller.event("DELETE", f"/v1/jobs/{job_id}"))
    assert reply.status == 204
    worker.write("out", 1, caller.runtime.tgi())
    notify(caller, job_id, "Completed", **completed(1))
    assert show(caller, job_id).json["status"] == "cancelled"
    assert "Contents" not in worker.s3.list_objects_v2(Bucket=BUCKET)


@pytest.mark.parametrize(("part", "operation"), [("objects", "put_object"), ("table", "put_item")])
def test_before_submission_a_broken_store_is_a_503_and_nothing_is_queued(
    caller, worker, part, operation
):
    getattr(worker, part).broken = operation
    reply = caller.post("/v1/jobs", BODY)
    assert (reply.status, reply.json["error"]["code"]) == (503, "jobs_unavailable")
    assert worker.queue == []


def test_a_refused_submission_can_be_repeated_under_its_key(caller, worker):
    worker.error = "ThrottlingException"
    reply = caller.post("/v1/jobs", BODY, {"Idempotency-Key": "k"})
    assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
    worker.error = None
    job_id = begin(caller, {"Idempotency-Key": "k"})
    assert show(caller, job_id).json["status"] == "running"


def test_a_table_that_fails_after_submission_does_not_lose_the_job(caller, worker):
    worker.table.broken = "update_item"
    job_id = begin(caller)
    worker.table.broken = ""
    assert show(caller, job_id).json["status"] == "queued"
    worker.write("out", 1, caller.runtime.tgi())
    notify(caller, job_id, "Completed", **completed(1))
    assert show(caller, job_id).json["status"] == "succeeded"


def test_a_notification_that_cannot_be_kept_is_given_back_for_another_try(caller, worker):
    from specinfer_gateway.errors import GatewayError

    job_id = begin(caller)
    worker.table.broken = "update_item"
    with pytest.raises(GatewayError):
        notify(caller, job_id, "Completed", **completed(1))


def test_a_function_that_died_before_submitting_is_made_good_by_the_repeat(caller, worker):
    worker.error = "ThrottlingException"
    caller.post("/v1/jobs", BODY, {"Idempotency-Key": "k"})
    item = worker.table.scan(TableName="jobs")["Items"][0]
    item |= {"status": {"S": "queued"}, "failure": {"S": ""}}
    worker.table.put_item(TableName="jobs", Item=item)
    worker.error = None
    begin(caller, {"Idempotency-Key": "k"})
    assert worker.queue == []
    caller.clock.seconds += 61
    begin(caller, {"Idempotency-Key": "k"})
    assert len(worker.queue) == 1


def test_the_same_key_is_the_same_job_and_another_body_a_409(caller, worker):
    first, second = (begin(caller, {"Idempotency-Key": "k"}) for _ in range(2))
    assert first == second
    assert len(worker.queue) == 1
    reply = caller.post("/v1/jobs", {"inputs": "other"}, {"Idempotency-Key": "k"})
    assert (reply.status, reply.json["error"]["code"]) == (409, "idempotency_mismatch")
    assert worker.read_input(1) == BODY, "the first job's input was replaced"


def test_an_expired_job_gives_its_key_free(caller, worker):
    first = begin(caller, {"Idempotency-Key": "k"})
    caller.clock.seconds += 1_001
    assert begin(caller, {"Idempotency-Key": "k"}) == first
    assert len(worker.queue) == 2


def test_a_job_is_its_owners_alone(caller, worker):
    class Keys:
        def owner(self, headers):
            return headers["x-api-key"]

    caller.keys = Keys()
    reply = caller.post("/v1/jobs", BODY, {"x-api-key": "alice"})
    path = f"/v1/jobs/{reply.json['id']}"
    assert caller.send(caller.event("GET", path, None, {"x-api-key": "alice"})).status == 200
    for method in ("GET", "DELETE"):
        assert caller.send(caller.event(method, path, None, {"x-api-key": "bob"})).status == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "unknown_dialect"),
        ({"inputs": "a", "prompt": "b"}, "unknown_dialect"),
        ({"inputs": "a", "stream": True}, "stream_unavailable"),
    ],
)
def test_a_faulty_body_is_a_400(caller, worker, body, code):
    reply = caller.post("/v1/jobs", body)
    assert (reply.status, reply.json["error"]["code"]) == (400, code)


def test_an_expired_job_is_gone_and_an_expired_result_is_a_410(caller, worker):
    job_id = begin(caller)
    notify(caller, job_id, "Completed", **completed(1))
    assert show(caller, job_id).status == 410
    caller.clock.seconds += 1_001
    assert show(caller, job_id).status == 404


def test_a_strange_output_is_a_failed_job(caller, worker):
    job_id = begin(caller)
    worker.write("out", 1, b"<html>")
    assert show(caller, job_id).json["status"] == "failed"


def test_without_an_asynchronous_endpoint_the_route_says_so(caller):
    reply = caller.post("/v1/jobs", BODY)
    assert (reply.status, reply.json["error"]["code"]) == (404, "jobs_disabled")
