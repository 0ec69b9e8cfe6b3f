"""Every sampling parameter reaches the engine from every dialect that has it."""

import dataclasses

import pytest

from specinfer.config import EngineConfig
from specinfer.sampling import SamplingParams
from specinfer.server.run import load_engine
from specinfer.testing.toy import write_tiny_model

SHARED = {
    "min_p": 0.1,
    "repetition_penalty": 1.5,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "top_p": 0.9,
    "top_k": 7,
    "temperature": 0.8,
    "seed": 11,
}
OPENAI = SHARED | {
    "min_tokens": 2,
    "max_tokens": 5,
    "ignore_eos": True,
    "stop_token_ids": [3, 4],
    "logit_bias": {"65": -100, "66": 2.5},
}
TGI = SHARED | {
    "min_new_tokens": 2,
    "max_new_tokens": 5,
    "ignore_eos_token": True,
    "typical_p": 0.7,
}
COMMON = SamplingParams(**SHARED, min_new_tokens=2, max_new_tokens=5, ignore_eos=True)
FROM_OPENAI = dataclasses.replace(COMMON, stop_token_ids=(3, 4), logit_bias={65: -100.0, 66: 2.5})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": [{"role": "user", "content": "a"}]} | OPENAI, FROM_OPENAI),
        ({"prompt": "a"} | OPENAI, FROM_OPENAI),
        ({"inputs": "a", "parameters": TGI}, dataclasses.replace(COMMON, typical_p=0.7)),
    ],
    ids=["chat", "completions", "tgi"],
)
def test_parameters_reach_the_engine(server, body, expected):
    assert server.post(body).status_code == 200
    assert server.engine.requests[-1].request.params == expected


@pytest.fixture(scope="module")
def real(tmp_path_factory, start_for_module):
    """Return a server with a tiny real engine, shared by tests that change nothing of it."""
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"), "llama", vocab=97)
    config = EngineConfig(model=folder, max_batch=4, cache_tokens=1024, device="cpu", threads=1)
    return start_for_module(load=lambda: load_engine(config))


COMPLETION = {"prompt": [5, 6, 7], "max_tokens": 6, "temperature": 0, "ignore_eos": True}


def test_token_ids_beyond_the_vocabulary_are_refused_and_harm_nobody(real):
    for change in ({"logit_bias": {"97": 1}}, {"stop_token_ids": [97], "min_tokens": 2}):
        response = real.post(COMPLETION | change)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == next(iter(change))
        assert "vocabulary of 97" in error["message"]
    assert real.post(COMPLETION | {"logit_bias": {"96": 1}}).status_code == 200
    assert real.client.get("/ping").status_code == 200


def test_a_bias_decides_what_the_real_engine_says(real):
    body = COMPLETION | {"logit_bias": {"33": 100}, "logprobs": 2}
    (choice,) = real.post(body).json()["choices"]
    assert choice["text"] == "AAAAAA"
    assert len(choice["logprobs"]["token_logprobs"]) == 6
    assert all(value < 0 for value in choice["logprobs"]["token_logprobs"])


def test_real_choices_differ_by_seed_and_repeat(real):
    body = COMPLETION | {"temperature": 1.0, "n": 3, "seed": 5}
    texts = [[c["text"] for c in real.post(body).json()["choices"]] for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3
    alone = real.post(body | {"n": 1, "seed": 6}).json()["choices"][0]["text"]
    assert alone == texts[0][1]
