"""The examples of docs/server.md."""

import json
import re
import shlex
from pathlib import Path

from specinfer.server.dialects.dispatch import dialect_of
from specinfer.server.settings import load_settings

TEXT = (Path(__file__).parents[2] / "docs" / "server.md").read_text()


def test_every_curl_of_the_page_is_answered(server):
    commands = re.findall(r"^\$ (curl .+)$", TEXT, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        _, _, url, _, body = shlex.split(command)
        path = url.removeprefix("localhost:8080")
        response = server.client.post(path, content=body)
        assert response.status_code == 200, response.text
        dialect_of(json.loads(body))


def test_every_route_of_the_table_is_there(server):
    paths = server.client.get("/openapi.json").json()["paths"].keys() | {"/openapi.json"}
    table = TEXT[TEXT.index("## Routes") : TEXT.index("```console", TEXT.index("## Routes"))]
    named = set(re.findall(r"(?<=[`\s])(/[a-z_/0-9.-]+)(?=`)", table))
    assert named == paths


def test_the_settings_example_is_read(tmp_path):
    (tmp_path / "specinfer.json").write_text(re.search(r"```json\n(.+)\n```", TEXT)[1])
    settings = load_settings({"SPECINFER_MODEL": str(tmp_path)})
    assert settings.engine.ssms == (tmp_path / "ssm-a", tmp_path / "ssm-b")
