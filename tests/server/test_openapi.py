"""Requests made from the server's own OpenAPI document, right ones and wrong ones: never a 5xx."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/generate",
    "/generate_stream",
    "/invocations",
)
FEW = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("path", PATHS)
def test_a_request_of_the_document_is_answered_or_refused(server, path, mode):
    document = server.client.get("/openapi.json").json()
    operation = schemathesis.openapi.from_dict(document)[path]["POST"]
    seen = set()

    @FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        response = case.call(base_url=str(server.client.base_url), timeout=10)
        assert response.status_code in {200, 400, 422}, response.text
        seen.add(response.status_code)

    ask()
    assert (200 in seen) == (mode is GenerationMode.POSITIVE)
