"""Alarms in the right unit, one dashboard with percentiles, traces, and logs that end."""

import json
from typing import Any

import pytest

from terraform_schema.aws_api import service_model
from terraform_schema.workspace import Applied


def alarm(stack: Applied, name: str) -> Any:
    return stack.one(f'aws_cloudwatch_metric_alarm.this["{name}"]').values


def test_model_latency_is_compared_in_microseconds(small: Applied) -> None:
    values = alarm(small, "model-p99")
    assert (values["metric_name"], values["extended_statistic"]) == ("ModelLatency", "p99")
    assert values["threshold"] == 5_000_000
    assert (values["evaluation_periods"], values["datapoints_to_alarm"]) == (5, 3)


def test_api_latency_is_compared_in_milliseconds(small: Applied) -> None:
    values = alarm(small, "api-p99")
    assert (values["namespace"], values["threshold"]) == ("AWS/ApiGateway", 5_000)


@pytest.mark.parametrize(("name", "gpus"), [("small", 1), ("medium", 4)])
def test_gpu_memory_is_compared_with_all_gpus(
    name: str, gpus: int, request: pytest.FixtureRequest
) -> None:
    values = alarm(request.getfixturevalue(name), "gpu-memory")
    assert values["namespace"] == "/aws/sagemaker/Endpoints"
    assert values["threshold"] == 90 * gpus


@pytest.mark.parametrize(
    "name",
    [
        "acceptance",
        "api-5xx",
        "broken-streams",
        "cache-throttles",
        "idle",
        "memory",
        "specinfer-small-answer-errors",
        "specinfer-small-answer-throttles",
    ],
)
def test_what_else_goes_wrong_has_an_alarm(small: Applied, name: str) -> None:
    assert alarm(small, name)["alarm_actions"]


def test_silence_alarms_only_where_silence_is_the_fault(small: Applied) -> None:
    assert alarm(small, "idle")["treat_missing_data"] == "breaching"
    assert alarm(small, "model-p99")["treat_missing_data"] == "notBreaching"


def test_every_alarm_tells_somebody(small: Applied, medium: Applied) -> None:
    for stack in (small, medium):
        for found in stack.of_type("aws_cloudwatch_metric_alarm"):
            assert found.values["alarm_actions"], found.address


def test_the_dashboard_shows_percentiles_tokens_trees_memory_and_cache(small: Applied) -> None:
    body = json.loads(small.one("aws_cloudwatch_dashboard.this").values["dashboard_body"])
    charts = {w["properties"]["title"]: w["properties"]["metrics"] for w in body["widgets"]}
    latencies = [chart for title, chart in charts.items() if "atency" in title]
    for chart in latencies:
        assert [m[-1]["stat"] for m in chart] == ["p50", "p95", "p99"]
    names = json.dumps(charts)
    for figure in (
        "TokensPerSecond",
        "TreeVerificationSuccess",
        "AcceptedTokensPerStep",
        "GPUMemoryUtilization",
        "specinfer_kv_blocks_used",
        "CacheHit",
    ):
        assert figure in names


def test_the_figures_of_the_model_server_are_those_it_publishes(small: Applied) -> None:
    emf = pytest.importorskip("specinfer.server.emf")
    watched = [alarm(small, "acceptance")["metric_name"]]
    body = json.loads(small.one("aws_cloudwatch_dashboard.this").values["dashboard_body"])
    for widget in body["widgets"]:
        for metric in widget["properties"]["metrics"]:
            if "model-server" in metric:
                assert metric[0] == emf.NAMESPACE
                watched.append(metric[1])
    assert set(watched) <= set(emf.UNITS)
    (model,) = small.of_type("aws_sagemaker_model")
    assert model.values["primary_container"][0]["environment"]["SPECINFER_EMF"] == "true"


def test_requests_are_traced(small: Applied) -> None:
    assert small.one("aws_api_gateway_stage.this").values["xray_tracing_enabled"]
    for function in small.of_type("aws_lambda_function"):
        assert function.values["tracing_config"] == [{"mode": "Active"}]
    assert small.of_type("aws_xray_group")


def test_every_log_group_ends(stack: Applied) -> None:
    assert stack.of_type("aws_cloudwatch_log_group")
    for group in stack.of_type("aws_cloudwatch_log_group"):
        assert 30 <= group.values["retention_in_days"] <= 90, group.address


def test_every_log_group_that_a_service_would_make_by_itself_is_made_here(small: Applied) -> None:
    groups = {g.values["name"] for g in small.of_type("aws_cloudwatch_log_group")}
    assert "/aws/sagemaker/Endpoints/specinfer-small" in groups
    for function in small.of_type("aws_lambda_function"):
        assert function.values["logging_config"][0]["log_group"] in groups


def test_container_metrics_are_scraped_unless_switched_off() -> None:
    """hashicorp/aws 6.62 has no metrics_config; the API's default is what we rely on."""
    shape = service_model("sagemaker").shape_for("MetricsConfig")
    assert "EnableDetailedObservability" in shape.members
