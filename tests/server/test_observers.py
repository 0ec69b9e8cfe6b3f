"""What the server tells about its requests: metrics, EMF and log lines, spans, headers."""

import io
import json
import logging

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from specinfer.server.attributes import read_attributes
from specinfer.server.emf import EmfLines
from specinfer.server.request_log import RequestLog
from specinfer.server.spans import PHASES, Spans
from specinfer.testing.fake_engine import FakeEngine

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


def ask(server, text="abc", tokens=7, **kwargs):
    return server.post({"inputs": text, "parameters": {"max_new_tokens": tokens}}, **kwargs)


def metrics(server):
    page = server.client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(page.text)
    samples = [sample for family in families for sample in family.samples]
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for sample in samples
    }


def test_metrics_equal_the_recount_from_the_answers(start):
    server = start()
    answers = [ask(server, text).json()[0]["details"] for text in ("ab", "abc", "abcd")]
    told = [answer["speculation"] for answer in answers]
    page = metrics(server)
    assert page["specinfer_verify_steps_total"] == sum(each["steps"] for each in told)
    assert page["specinfer_accepted_tokens_total"] == sum(each["accepted"] for each in told)
    assert page["specinfer_accepted_per_step_sum"] == sum(each["accepted"] for each in told)
    drafted = sum(each["ssms"][0]["drafted"] for each in told)
    assert page["specinfer_drafted_tokens_total[fake]"] == drafted
    assert page["specinfer_generated_tokens_total"] == 21
    assert page["specinfer_prompt_tokens_total"] == 9
    assert page["specinfer_verify_success_total"] == 6
    assert page["specinfer_plain_steps_total"] == sum(each["plain_steps"] for each in told) == 0
    assert page["specinfer_requests_total[inputs][ok]"] == 3
    assert page["specinfer_time_to_first_token_seconds_count"] == 3
    assert page["specinfer_inter_token_seconds_count"] == 3 * 4
    assert page["specinfer_kv_blocks_total"] == 8


def test_refusals_failures_and_departures_are_counted_by_code(start, wait_until):
    server = start(FakeEngine(fail_at_step=2, max_context=10))
    ask(server, "")
    ask(server, "x" * 20)
    ask(server)
    page = metrics(server)
    assert page["specinfer_requests_total[inputs][invalid_parameter]"] == 1
    assert page["specinfer_requests_total[inputs][context_length_exceeded]"] == 1
    assert page["specinfer_requests_total[inputs][generation_failed]"] == 1


def test_a_caller_that_left_is_counted_once(start, wait_until):
    server = start(FakeEngine(step_s=0.01))
    body = {"prompt": "ab", "max_tokens": 2000, "stream": True}
    with server.client.stream("POST", "/invocations", json=body) as response:
        next(response.iter_raw())
    wait_until(lambda: metrics(server)["specinfer_requests_cancelled_total"] == 1)
    assert metrics(server)["specinfer_requests_total[prompt][client_gone]"] == 1


def test_gauges_are_zero_while_there_is_no_engine(start):
    def load():
        raise ValueError("no engine")

    assert metrics(start(load=load, ready=False))["specinfer_kv_blocks_total"] == 0


def test_an_emf_line_has_the_figures_in_cloudwatchs_form(start):
    out = io.StringIO()
    server = start(observers=(EmfLines(out, lambda: 5.0),))
    ask(server)
    (line,) = out.getvalue().splitlines()
    document = json.loads(line)
    assert document["_aws"]["Timestamp"] == 5000
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "SpecInfer"
    assert directive["Dimensions"] == [["service"]]
    for metric in directive["Metrics"]:
        assert isinstance(document[metric["Name"]], int | float)
    assert document["GeneratedTokens"] == 7
    assert document["AcceptedTokensPerStep"] == pytest.approx(4 / 3, abs=1e-3)
    assert document["TreeVerificationSuccess"] == pytest.approx(200 / 3, abs=1e-3)


def test_the_log_holds_figures_but_no_word_of_prompt_or_answer(start, caplog):
    server = start(observers=(RequestLog(),))
    with caplog.at_level(logging.DEBUG):
        ask(server, "canary-prompt")
        ask(server, "", headers={"Authorization": "canary-key"})
    assert "outcome=ok tokens=7 steps=3" in caplog.text
    assert "canary" not in caplog.text


def test_spans_continue_the_callers_trace_and_fit_inside_their_parent(start, wait_until):
    exporter = InMemorySpanExporter()
    clock = iter(range(10**18, 10**19))
    spans = Spans.export_to(exporter, lambda: next(clock))
    server = start(FakeEngine(step_s=0.01), observers=(spans,))
    ask(server, headers={ATTRIBUTES: f"traceparent={TRACEPARENT}"})
    spans.provider.force_flush()
    found = {span.name: span for span in exporter.get_finished_spans()}
    spans.provider.shutdown()
    assert found.keys() == {"generate", *PHASES}
    root = found.pop("generate")
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT
    assert root.attributes["specinfer.steps"] == 3
    for span in found.values():
        assert span.parent.span_id == root.context.span_id
        assert root.start_time <= span.start_time <= span.end_time <= root.end_time


def test_timings_come_back_in_custom_attributes(server):
    response = ask(server, headers={ATTRIBUTES: f"traceparent={TRACEPARENT};other=1"})
    told = read_attributes(response.headers[ATTRIBUTES])
    assert told["traceparent"] == TRACEPARENT
    assert (told["steps"], told["generated_tokens"]) == ("3", "7")
    assert {"queue_ms", "prefill_ms", "ssm_ms", "verify_ms", "commit_ms"} <= told.keys()
    assert "other" not in told


@pytest.mark.parametrize("given", ["traceparent=nonsense", "=;=,;", "x", "traceparent"])
def test_attributes_of_another_form_break_nothing(server, given):
    response = ask(server, headers={ATTRIBUTES: given})
    assert response.status_code == 200
    assert "traceparent" not in response.headers[ATTRIBUTES]


def test_a_route_in_custom_attributes_chooses_the_dialect(server):
    body = {"prompt": "a", "inputs": "a", "max_tokens": 1}
    response = server.post(body, headers={ATTRIBUTES: "route=/v1/completions"})
    assert response.json()["object"] == "text_completion"
