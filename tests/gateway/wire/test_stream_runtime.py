"""The streaming runtime as Lambda runs it: a process, the Runtime API, SageMaker by wire."""

import json

import pytest

from specinfer.local.event_stream import payload_part, stream_error

PIECES = [b'data: {"choices": [{"delta": {"content": "%d"}}]}\n\n' % i for i in range(5)]
FRAMES = [payload_part(piece) for piece in PIECES]
DONE = payload_part(b"data: [DONE]\n\n")
LATE = stream_error("ModelInvocationTimeExceeded", "Your invocation timed out")
BODY = {"messages": [{"role": "user", "content": "hi"}], "stream": True}


def event(path="/v1/chat/completions", body=BODY):
    return {
        "resource": path,
        "path": path,
        "httpMethod": "POST",
        "headers": {"Content-Type": "application/json"},
        "multiValueHeaders": None,
        "requestContext": {"requestId": "r-1", "stage": "v", "path": f"/v{path}"},
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }


def split(result):
    """Return the metadata, and the body's parts with their times."""
    (_, head), *parts = result.parts
    metadata, separator, rest = head.partition(b"\0" * 8)
    assert separator and not rest
    return json.loads(metadata), parts


def test_tokens_come_one_by_one(streaming, sagemaker):
    sagemaker.behave = sagemaker.stream(*FRAMES, DONE, pause=0.05)
    result = streaming.invoke(event())
    metadata, parts = split(result)
    assert result.streamed and result.error is None
    assert metadata["headers"]["X-Request-Id"] == "r-1"
    assert b"".join(data for _, data in parts) == b"".join(PIECES) + b"data: [DONE]\n\n"
    assert len(parts) >= 5
    assert parts[-1][0] - parts[0][0] > 0.15, "the answer was held back"
    assert len(sagemaker.posts) == 1


@pytest.mark.parametrize(
    ("last", "cut", "code"),
    [
        (
            stream_error("ModelInvocationTimeExceeded", "Your invocation timed out"),
            False,
            "timeout",
        ),
        (stream_error("StreamBroken", "arn:aws:x"), False, "stream_broken"),
        (b"", True, "stream_broken"),
        (FRAMES[4], False, "stream_broken"),
    ],
)
def test_a_failure_in_mid_stream_is_told_in_the_stream(streaming, sagemaker, last, cut, code):
    sagemaker.behave = sagemaker.stream(*FRAMES[:4], *filter(None, [last]), cut=cut)
    metadata, parts = split(streaming.invoke(event()))
    assert metadata["statusCode"] == 200
    events = b"".join(data for _, data in parts).split(b"\n\n")
    assert json.loads(events[-2].removeprefix(b"data: "))["error"]["code"] == code
    assert events[-1] == b""
    assert b"arn:" not in b"".join(events)


def test_the_runtime_lives_on_after_failures_and_answers_the_rest_whole(streaming, sagemaker):
    sagemaker.behave = sagemaker.drop
    assert split(streaming.invoke(event()))[0]["statusCode"] == 503
    sagemaker.behave = sagemaker.answer
    metadata, parts = split(streaming.invoke(event("/generate", {"inputs": "hi"})))
    assert metadata["statusCode"] == 200
    assert json.loads(parts[0][1])["generated_text"] == "an answer"
    metadata, parts = split(streaming.invoke({"strange": True}))
    assert metadata["statusCode"] == 500


def test_a_function_that_cannot_be_built_says_why(start_function):
    import sys
    from pathlib import Path

    folder = Path(__file__).parents[3] / "lambda"
    command = [sys.executable, "-m", "specinfer_gateway.stream_runtime"]
    function = start_function(command, folder)
    assert function.process.wait(20) == 1
    assert "SPECINFER_ENDPOINT" in function.init_error["errorMessage"]
