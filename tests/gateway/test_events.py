"""Every odd shape of an API Gateway event gets an answer, never a fault of ours."""

import json
from pathlib import Path

import pytest

EVENTS = sorted((Path(__file__).parents[1] / "events").glob("*.json"))


@pytest.mark.parametrize("path", EVENTS, ids=lambda path: path.stem)
def test_an_event_has_its_status(caller, path):
    event = json.loads(path.read_text())
    expected = event.pop("expected")
    reply = caller.send(event)
    assert reply.status == expected, reply.text
    if expected != 200:
        assert reply.json["error"]


def test_repeated_headers_are_all_heard(caller):
    event = json.loads((EVENTS[0].parent / "repeated_headers.json").read_text())
    assert caller.send(event).headers["X-Cache"] == "BYPASS"
    assert caller.table.scan(TableName="cache")["Count"] == 0
