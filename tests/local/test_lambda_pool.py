import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specinfer.local.lambda_pool import (
    FunctionError,
    FunctionSettings,
    FunctionTimeoutError,
    LambdaPool,
)

HANDLER = """
import os, sys, time
print("imported")
calls = 0

def lambda_handler(event, context):
    global calls
    calls += 1
    do = event.get("do")
    if do == "raise":
        raise ValueError("as told")
    if do == "exit":
        sys.exit(3)
    if do == "hang":
        time.sleep(600)
    if do == "unserialisable":
        return {1, 2}
    if do == "meet":
        open(event["mine"], "w").close()
        while not os.path.exists(event["other"]):
            time.sleep(0.01)
    return {
        "calls": calls, "pid": os.getpid(), "environ": dict(os.environ),
        "left": context.get_remaining_time_in_millis(), "id": context.aws_request_id,
        "name": context.function_name, "modules": sorted(sys.modules),
    }
"""


@pytest.fixture
def settings(tmp_path: Path) -> FunctionSettings:
    (tmp_path / "handler.py").write_text(HANDLER)
    environment = {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}
    return FunctionSettings(folder=tmp_path, environment=environment, timeout_seconds=10)


@pytest.fixture
def pool(loop: Any, settings: FunctionSettings, tmp_path: Path) -> LambdaPool:
    pool: LambdaPool = loop.enter(LambdaPool(settings, tmp_path / "log"))
    return pool


def test_an_environment_stays_warm(loop: Any, pool: LambdaPool, tmp_path: Path) -> None:
    first = loop.run(pool.invoke({}, "r1"))
    second = loop.run(pool.invoke({}, "r2"))
    assert (first["calls"], second["calls"]) == (1, 2)
    assert first["pid"] == second["pid"]
    assert (first["id"], second["id"]) == ("r1", "r2")
    assert first["name"] == "f"
    assert 9000 < first["left"] <= 10_000
    assert (tmp_path / "log").read_text() == "imported\n"


def test_the_function_sees_its_own_environment_only(
    loop: Any, pool: LambdaPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    result = loop.run(pool.invoke({}, "r"))
    assert "AWS_PROFILE" not in result["environ"]
    assert "HOME" not in result["environ"]
    assert "torch" not in result["modules"]
    assert "specinfer" not in result["modules"]


def test_an_exception_is_told_and_the_environment_lives_on(loop: Any, pool: LambdaPool) -> None:
    loop.run(pool.invoke({}, "r"))
    with pytest.raises(FunctionError, match="ValueError: as told"):
        loop.run(pool.invoke({"do": "raise"}, "r"))
    assert loop.run(pool.invoke({}, "r"))["calls"] == 3


def test_a_result_that_is_not_json_is_an_error(loop: Any, pool: LambdaPool) -> None:
    with pytest.raises(FunctionError, match="not JSON serializable"):
        loop.run(pool.invoke({"do": "unserialisable"}, "r"))


def test_an_ended_process_is_replaced(loop: Any, pool: LambdaPool) -> None:
    with pytest.raises(FunctionError, match=r"ended \(3\)"):
        loop.run(pool.invoke({"do": "exit"}, "r"))
    assert loop.run(pool.invoke({}, "r"))["calls"] == 1


def test_a_late_function_is_killed_and_replaced(
    loop: Any, settings: FunctionSettings, tmp_path: Path
) -> None:
    late = replace(settings, timeout_seconds=0.3)
    pool = loop.enter(LambdaPool(late, tmp_path / "log"))
    pid = loop.run(pool.invoke({}, "r"))["pid"]
    with pytest.raises(FunctionTimeoutError):
        loop.run(pool.invoke({"do": "hang"}, "r"))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert loop.run(pool.invoke({}, "r"))["pid"] != pid


def test_two_events_at_once_get_two_environments(
    loop: Any, pool: LambdaPool, tmp_path: Path
) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")

    async def both() -> list[Any]:
        jobs = ({"do": "meet", "mine": a, "other": b}, {"do": "meet", "mine": b, "other": a})
        return await asyncio.gather(*(pool.invoke(job, "r") for job in jobs))

    one, two = loop.run(both())
    assert one["pid"] != two["pid"]


def test_a_handler_that_cannot_be_imported_is_an_error(
    loop: Any, pool: LambdaPool, settings: FunctionSettings
) -> None:
    (settings.folder / "handler.py").write_text("import nothing_of_this_name")
    with pytest.raises(FunctionError, match="No module named 'nothing_of_this_name'"):
        loop.run(pool.invoke({}, "r"))


def test_no_environment_outlives_the_pool(
    loop: Any, settings: FunctionSettings, tmp_path: Path
) -> None:
    async def use() -> int:
        async with LambdaPool(settings, tmp_path / "log") as pool:
            return int((await pool.invoke({}, "r"))["pid"])

    pid = loop.run(use())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
