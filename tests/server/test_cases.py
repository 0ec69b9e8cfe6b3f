"""Cases that users of other servers met; docs/cases.md lists all and their tests."""


def test_usage_counts_nothing_beyond_the_stop(start):
    """SGLang billed the tokens of a speculated block that the stop string cut (sglang#39826)."""
    server = start()
    body = {"prompt": "abcd", "max_tokens": 40, "stop": ["da"]}
    answer = server.post(body).json()
    assert answer["choices"][0]["text"] == "abc"
    assert answer["usage"]["completion_tokens"] == 3
    assert "specinfer_generated_tokens_total 3.0" in server.client.get("/metrics").text
    streamed = server.post(body | {"stream": True, "stream_options": {"include_usage": True}})
    assert '"completion_tokens": 3' in streamed.text.replace(":3", ": 3")
