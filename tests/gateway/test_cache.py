"""What may be kept, under which key, and what is served from the table."""

import json

import pytest

GREEDY = {"inputs": "hi", "parameters": {"max_new_tokens": 5}}


def states(caller, *bodies, path="/generate"):
    return [caller.post(path, body).headers["X-Cache"] for body in bodies]


def test_a_second_equal_request_is_a_hit_with_the_same_text(caller):
    first, second = caller.post("/generate", GREEDY), caller.post("/generate", GREEDY)
    assert [first.headers["X-Cache"], second.headers["X-Cache"]] == ["MISS", "HIT"]
    assert first.text == second.text
    assert len(caller.runtime.calls) == 1


def test_key_order_and_the_spelling_of_numbers_do_not_matter(caller):
    first = {"inputs": "hi", "parameters": {"temperature": 1, "seed": 3, "max_new_tokens": 5}}
    second = {"parameters": {"max_new_tokens": 5, "seed": 3, "temperature": 1.0}, "inputs": "hi"}
    assert states(caller, first, second) == ["MISS", "HIT"]


CHANGES = [
    {"max_new_tokens": 6},
    {"temperature": 0.5, "seed": 1},
    {"temperature": 0.5, "seed": 2},
    {"temperature": 0.6, "seed": 1},
    {"top_k": 3, "seed": 1},
    {"top_p": 0.5, "seed": 1},
    {"stop": ["a"]},
    {"repetition_penalty": 1.5},
    {"return_full_text": True},
    {"details": True},
    {"grammar": {"type": "regex", "value": "a+"}},
    {"grammar": {"type": "json", "value": {"properties": {"a": {}, "b": {}}}}},
    {"grammar": {"type": "json", "value": {"properties": {"b": {}, "a": {}}}}},
]


def test_every_parameter_that_changes_the_answer_changes_the_key(caller):
    bodies = [GREEDY, *({"inputs": "hi", "parameters": change} for change in CHANGES)]
    assert set(states(caller, *bodies)) == {"MISS"}
    assert set(states(caller, *bodies)) == {"HIT"}


def test_the_prompt_the_route_and_the_models_revision_change_the_key(caller, settings):
    from dataclasses import replace

    assert states(caller, GREEDY, GREEDY | {"inputs": "ho"}) == ["MISS", "MISS"]
    body = {"prompt": "hi", "temperature": 0}
    assert states(caller, body, path="/v1/completions") == ["MISS"]
    caller.settings = replace(settings, model_revision="r2")
    assert states(caller, GREEDY) == ["MISS"]


def test_the_engines_settings_change_the_key_of_a_seeded_sample_only(caller, settings):
    from dataclasses import replace

    seeded = {"inputs": "hi", "parameters": {"temperature": 0.5, "seed": 1}}
    states(caller, GREEDY, seeded)
    caller.settings = replace(settings, engine_revision="e2")
    assert states(caller, GREEDY, seeded) == ["HIT", "MISS"]


@pytest.mark.parametrize(
    ("path", "body", "kept"),
    [
        ("/generate", {"inputs": "a"}, True),
        ("/generate", {"inputs": "a", "parameters": {"temperature": 0}}, True),
        ("/generate", {"inputs": "a", "parameters": {"temperature": 0.7}}, False),
        ("/generate", {"inputs": "a", "parameters": {"temperature": 0.7, "seed": 1}}, True),
        (
            "/generate",
            {"inputs": "a", "parameters": {"do_sample": False, "temperature": 0.7}},
            True,
        ),
        ("/generate", {"inputs": "a", "parameters": {"do_sample": True}}, False),
        ("/generate", {"inputs": "a", "parameters": {"top_k": 5}}, False),
        ("/generate", {"inputs": "a", "parameters": {"top_p": 0.9}}, False),
        ("/generate", {"inputs": "a", "parameters": {"top_p": 1.0, "top_k": 0}}, True),
        ("/v1/completions", {"prompt": "a"}, False),
        ("/v1/completions", {"prompt": "a", "temperature": 0}, True),
        ("/v1/completions", {"prompt": "a", "seed": 4}, True),
        ("/v1/completions", {"prompt": "a", "do_sample": False}, False),
    ],
)
def test_only_greedy_and_seeded_answers_are_kept(caller, path, body, kept):
    expected = ["MISS", "HIT"] if kept else ["BYPASS", "BYPASS"]
    assert states(caller, body, body, path=path) == expected


def test_an_expired_item_is_a_miss_though_the_table_still_has_it(caller):
    states(caller, GREEDY)
    caller.clock.seconds += caller.settings.cache_ttl_seconds + 1
    assert caller.table.scan(TableName="cache")["Count"] == 1
    assert states(caller, GREEDY, GREEDY) == ["MISS", "HIT"]


def test_cache_control_is_honoured(caller):
    states(caller, GREEDY)
    no_cache = caller.post("/generate", GREEDY, {"cache-control": "No-Cache, max-age=0"})
    no_store = caller.post("/generate", GREEDY | {"inputs": "new"}, {"Cache-Control": "no-store"})
    assert [no_cache.headers["X-Cache"], no_store.headers["X-Cache"]] == ["BYPASS", "BYPASS"]
    assert len(caller.runtime.calls) == 3
    assert states(caller, GREEDY | {"inputs": "new"}) == ["MISS"]


def poison(caller, **attributes):
    key = caller.table.scan(TableName="cache")["Items"][0]["cache_key"]
    expiry = {"N": str(int(caller.clock.seconds) + 1000)}
    item = {"cache_key": key, "ttl": expiry} | attributes
    caller.table.put_item(TableName="cache", Item={k: v for k, v in item.items() if v})


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"answer": {"S": "text"}},
        {"answer": {"B": b"not gzip"}},
        {"answer": {"B": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xffK\x04\x00C\xbe\xb7\xe8"}},
        {"answer": {"B": b""}, "ttl": {"S": "soon"}},
        {"ttl": None, "answer": {"B": b"x"}},
    ],
)
def test_a_poisoned_item_is_a_miss_and_is_replaced(caller, attributes):
    states(caller, GREEDY)
    poison(caller, **attributes)
    assert states(caller, GREEDY, GREEDY) == ["MISS", "HIT"]


def test_a_partial_or_failed_answer_is_never_kept(caller):
    cut = json.loads(caller.runtime.tgi())
    cut[0]["details"]["truncated_by"] = "deadline"
    caller.runtime.script = lambda body: json.dumps(cut).encode()
    assert states(caller, GREEDY, GREEDY) == ["MISS", "MISS"]
    for answer in (caller.runtime.tgi(finish="error"), b"<html>", b"[]", b"null"):
        caller.runtime.script = lambda body, answer=answer: answer
        assert caller.post("/generate", GREEDY).status == 502
    assert caller.table.scan(TableName="cache")["Count"] == 0


def test_an_answer_too_large_for_an_item_is_served_and_counted(caller):
    import random

    noise = random.Random(1).randbytes(300_000).hex()
    caller.runtime.script = lambda body: caller.runtime.tgi(noise + noise[::-1])
    assert states(caller, GREEDY, GREEDY) == ["MISS", "MISS"]
    assert caller.meter.total("CacheSkippedTooLarge") == 2


@pytest.mark.parametrize("operation", ["get_item", "put_item"])
def test_a_broken_table_only_costs_the_cache(caller, operation):
    from botocore.exceptions import ConnectTimeoutError

    class Broken:
        def __init__(self, client):
            self.client = client

        def __getattr__(self, name):
            if name == operation:
                raise ConnectTimeoutError(endpoint_url="x")
            return getattr(self.client, name)

    caller.table = Broken(caller.table)
    reply = caller.post("/generate", GREEDY)
    assert (reply.status, reply.headers["X-Cache"]) == (200, "BYPASS")
    assert caller.meter.total("CacheError") == 1
    assert len(caller.runtime.calls) == 1
