"""The document that is served describes the routes that are there."""

import json
from importlib.metadata import version

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from specinfer_gateway.dialects import DIALECTS


@pytest.fixture
def served(caller):
    reply = caller.send(caller.event("GET", "/openapi.json"))
    assert reply.status == 200
    return reply.json


def test_it_is_valid_openapi_3_1(served):
    assert served["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(served).validate()
    assert version("openapi-spec-validator")


def test_every_route_of_it_answers_something_else_than_404(caller, served):
    assert {dialect.route for dialect in DIALECTS} < set(served["paths"])
    for path, operations in served["paths"].items():
        for method in operations.keys() & {"get", "post", "delete"}:
            reply = caller.send(caller.event(method.upper(), path, "{}"))
            assert (path, reply.status) != (path, 404) or "jobs_disabled" in reply.text


def test_bounds_are_in_it(served):
    chat = served["components"]["schemas"]["ChatRequest"]
    assert chat["required"] == ["messages"]
    assert chat["properties"]["messages"]["minItems"] == 1
    assert '"maximum": 100' in json.dumps(chat["properties"]["temperature"])
