import base64
from typing import Any

import pytest

from specinfer.local.proxy_event import HttpRequest, MalformedAnswerError, from_answer, to_event


def _request(**changes: Any) -> HttpRequest:
    given: dict[str, Any] = {
        "method": "POST",
        "path": "/v1/chat/completions",
        "query": "",
        "headers": [("host", "127.0.0.1:8000"), ("content-type", "application/json")],
        "body": '{"é": 1}'.encode(),
        "source_ip": "10.1.2.3",
        "id": "id-1",
        "received_at": 1_700_000_000.5,
    }
    return HttpRequest(**(given | changes))


def test_the_event_has_every_field_of_a_rest_proxy_event() -> None:
    event = to_event(_request())
    assert event["resource"] == "/{proxy+}"
    assert event["path"] == "/v1/chat/completions"
    assert event["pathParameters"] == {"proxy": "v1/chat/completions"}
    assert event["httpMethod"] == "POST"
    assert event["headers"]["Content-Type"] == "application/json"
    assert event["headers"]["X-Forwarded-For"] == "10.1.2.3"
    assert event["headers"]["X-Amzn-Trace-Id"].startswith("Root=1-6553f100-")
    assert event["queryStringParameters"] is None
    assert event["multiValueQueryStringParameters"] is None
    assert event["stageVariables"] is None
    assert (event["body"], event["isBase64Encoded"]) == ('{"é": 1}', False)


def test_the_context_tells_who_and_when() -> None:
    context = to_event(_request())["requestContext"]
    assert context["requestId"] == "id-1"
    assert context["requestTime"] == "14/Nov/2023:22:13:20 +0000"
    assert context["requestTimeEpoch"] == 1_700_000_000_500
    assert context["identity"]["sourceIp"] == "10.1.2.3"
    assert context["identity"]["apiKey"] is None
    assert context["httpMethod"] == "POST"


def test_repeated_names_keep_all_values_and_the_last() -> None:
    event = to_event(_request(query="a=1&a=2&b=", headers=[("x-many", "p"), ("x-many", "q")]))
    assert event["queryStringParameters"] == {"a": "2", "b": ""}
    assert event["multiValueQueryStringParameters"] == {"a": ["1", "2"], "b": [""]}
    assert event["headers"]["X-Many"] == "q"
    assert event["multiValueHeaders"]["X-Many"] == ["p", "q"]


def test_a_binary_body_is_base64() -> None:
    event = to_event(_request(body=b"\xff\x00"))
    assert event["isBase64Encoded"]
    assert base64.b64decode(event["body"]) == b"\xff\x00"


def test_no_body_is_null() -> None:
    assert to_event(_request(body=b""))["body"] is None


def test_an_answer_keeps_status_headers_and_text() -> None:
    answer = from_answer(
        {
            "statusCode": 201,
            "headers": {"X-Cache": "HIT", "Retry-After": 5, "set-cookie": "lost"},
            "multiValueHeaders": {"Set-Cookie": ["a=1", "b=2"]},
            "body": "é",
        }
    )
    assert answer.status == 201
    assert answer.body == "é".encode()
    assert answer.headers == [
        ("X-Cache", "HIT"),
        ("Retry-After", "5"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("Content-Type", "application/json"),
    ]


def test_a_base64_answer_is_decoded() -> None:
    answer = from_answer(
        {"statusCode": 200, "body": base64.b64encode(b"\xff").decode(), "isBase64Encoded": True}
    )
    assert answer.body == b"\xff"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "text",
        {},
        {"body": "no status"},
        {"statusCode": "many"},
        {"statusCode": 200, "body": {"not": "text"}},
        {"statusCode": 200, "body": "***", "isBase64Encoded": True},
        {"statusCode": 200, "headers": {"X": ["list"]}},
        {"statusCode": 200, "headers": "text"},
    ],
)
def test_what_is_no_proxy_answer_is_malformed(answer: object) -> None:
    with pytest.raises(MalformedAnswerError):
        from_answer(answer)
