"""The content filter's hook, and texts of every shape."""

import pytest

from specinfer_gateway.admission import load_filter
from specinfer_gateway.errors import SettingsError


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"inputs": "a bad word"}),
        ("/v1/completions", {"prompt": ["a bad word"]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a bad word"}]}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "bad"}]}]},
        ),
    ],
)
def test_a_filter_sees_every_text_and_its_reason_is_told(caller, path, body):
    caller.content_filter = lambda text: "not allowed here" if "bad" in text else None
    reply = caller.post(path, body)
    assert reply.status in (400, 422)
    assert "not allowed here" in reply.text
    assert "content_filter" in reply.text
    assert caller.runtime.calls == []


def test_a_filter_lets_the_rest_pass(caller):
    caller.content_filter = lambda text: None
    assert caller.post("/v1/completions", {"prompt": [1, 2, 3]}).status == 200


def test_a_filter_is_named_by_module_and_function():
    assert load_filter("") is None
    assert load_filter("specinfer_gateway.upstream:clean") is not None


@pytest.mark.parametrize("name", ["nowhere:f", "specinfer_gateway.upstream:nothing", ":"])
def test_a_filter_that_is_not_there_is_a_fault_of_the_settings(name):
    with pytest.raises(SettingsError, match="SPECINFER_CONTENT_FILTER"):
        load_filter(name)
